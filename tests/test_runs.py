"""Sessions: each run is made once, a failed one is a sentence, and a file is what was written just now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.backends.registry import Backend
from conformance.checkpoints.store import Checkpoint
from conformance.compare.noise import half_ulp, measure
from conformance.errors import BadInput
from conformance.feeds import Feed, Forward
from conformance.runs import Run, Session, truth_orders
from conformance.workers.host import Bounds, WorkerError
from tests import toys
from tests.workers.test_host import SCRIPT

FEED = Feed(tokens=((3, 1, 4, 1, 5),), steps=(Forward(5),))
Toy = Callable[..., Backend]


@pytest.fixture
def session(tmp_path: Path, toy: Toy) -> Iterator[Session]:
    """A session whose reference is the toy."""
    session = Session(tmp_path / "session", Bounds(start_seconds=120, run_seconds=120))
    session.add(toy("Toy", "reference"))
    yield session
    session.close()


def scripted(behaviour: str) -> Backend:
    """A worker of tests/workers/scripted.py, named by what it does."""
    return Backend(name=behaviour, title="", command=(sys.executable, "-S", str(SCRIPT), behaviour))


def expected(checkpoint: Checkpoint, feed: Feed) -> np.ndarray:
    toy = toys.Toy({})
    return toy.run(toy.prepare(checkpoint.path), feed)


def test_a_run(session: Session, toy: Toy, checkpoint: Checkpoint) -> None:
    session.add(toy("Toy", "mine"))
    run = session.run("mine", checkpoint, FEED).result()
    assert (run.kind, run.message) == ("", "")
    np.testing.assert_array_equal(run.logits, expected(checkpoint, FEED))
    assert run.seconds > 0
    assert run.prepare_seconds > 0


def test_equal_questions_share_one_answer(session: Session, toy: Toy, checkpoint: Checkpoint) -> None:
    session.add(toy("Toy", "mine"))
    first = session.run("mine", checkpoint, FEED)
    assert session.run("mine", checkpoint, replace(FEED)) is first
    other = session.run("mine", checkpoint, FEED.split([2]))
    assert other is not first
    other.result()
    spent = session.spending()["mine"]
    assert (spent.calls, spent.shared) == (2, 1)
    assert spent.prepare > 0
    assert spent.forward > 0
    assert session.starts() == {"mine": 1, "reference": 0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_truth(session: Session, checkpoint: Checkpoint, dtype: str) -> None:
    feed = replace(FEED, dtype=dtype)
    truth = session.truth(checkpoint, feed).result()
    exact = expected(checkpoint, replace(FEED, dtype="float64"))
    np.testing.assert_array_equal(truth.logits, exact)
    np.testing.assert_array_equal(truth.in_dtype, expected(checkpoint, feed))
    rounding = np.abs(expected(checkpoint, feed).astype(np.float64) - exact).max(-1)
    np.testing.assert_array_equal(truth.noise, np.maximum(rounding, half_ulp(np.abs(exact).max(-1), dtype)))


def test_every_chunking_has_one_truth(session: Session, checkpoint: Checkpoint) -> None:
    truth = session.truth(checkpoint, FEED)
    assert session.truth(checkpoint, FEED.token_by_token()) is truth
    assert session.truth(checkpoint, replace(FEED, mode="training")) is truth
    assert session.truth(checkpoint, replace(FEED, dtype="bfloat16")) is not truth


def test_truths_with_faults_are_of_the_feed_itself(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """One worker gives both: the reference's."""
    session = Session(tmp_path / "session", Bounds(start_seconds=120, run_seconds=120))
    faults = ("decode-position-one-late", "window-one-short")
    decode = FEED.token_by_token()
    with closing(session):
        plain, faulty = session.truth(checkpoint, FEED), session.truth(checkpoint, FEED, faults)
        assert session.truth(checkpoint, decode) is plain
        assert session.truth(checkpoint, decode, faults) is not faulty
        assert session.truth(checkpoint, replace(FEED), faults) is faulty
        adapter = FaultyAdapter({"faults": faults})
        for feed in (FEED, decode):
            truth = session.truth(checkpoint, feed, faults).result()
            exact = adapter.run(adapter.prepare(checkpoint.path), replace(feed, dtype="float64"))
            np.testing.assert_array_equal(truth.logits, exact)
            assert np.abs(truth.logits - plain.result().logits).max() > 0.01
            assert (truth.noise > 0).all()
        assert session.starts() == {"reference": 1}


def test_orders_of_a_truth() -> None:
    assert truth_orders("plamo3", "float64") == ("relabel:0",)
    assert truth_orders("plamo3", "bfloat16")[-1].startswith("casts:")
    two = ("gqa-tiled", "window-one-short")
    named = "faults:gqa-tiled,window-one-short"
    assert truth_orders("plamo3", "bfloat16", two) == (f"{named};relabel:0", f"{named};relabel:1")
    relabelled = tuple(f"{named};relabel:{n}" for n in range(5))
    assert truth_orders("plamo3", "float32", two) == relabelled


def test_what_a_fault_rounds_falls_to_either_side() -> None:
    faults = ("cache-float16", "window-one-short")
    named = "faults:cache-float16,window-one-short"
    assert truth_orders("plamo3", "float32", faults)[5:] == (f"{named};lean:up", f"{named};lean:down")
    # Narrower runs round everywhere; in wider ones nothing is near a border.
    for dtype in ("bfloat16", "float64"):
        assert all("relabel" in order for order in truth_orders("plamo3", dtype, faults))


def test_the_noise_of_a_fault_that_rounds_covers_both_sides_of_a_border(checkpoint: Checkpoint) -> None:
    """In relabelling 22 one number of K falls otherwise than in those that the noise is measured on."""
    adapter = ReferenceAdapter({})
    model = adapter.prepare(checkpoint.path)
    row = (3, 1, 41, 59, 26, 53, 58, 9, 79, 32)
    feed = Feed(tokens=(row,), steps=(Forward(10),))
    named = "faults:cache-bfloat16"
    exact = adapter.run_in_order(model, replace(feed, dtype="float64"), named)
    off = np.abs(adapter.run_in_order(model, feed, f"{named};relabel:22") - exact).max(axis=-1)
    orders = truth_orders("plamo3", "float32", ("cache-bfloat16",))
    runs = {order: adapter.run_in_order(model, feed, order) for order in orders}
    relabelled = measure(exact, [run for order, run in runs.items() if "lean" not in order], "float32")
    assert (off / relabelled.noise).max() > 50
    assert (off / measure(exact, list(runs.values()), "float32").noise).max() < 2


def test_another_directory_for_one_backend(session: Session, toy: Toy, checkpoint: Checkpoint) -> None:
    seen: list[Checkpoint] = []

    def dress(plain: Checkpoint) -> Checkpoint:
        seen.append(plain)
        return replace(plain, path=plain.path / ".." / plain.path.name)

    session.add(toy("Toy", "dressed"), dress)
    assert session.run("dressed", checkpoint, FEED).result().kind == ""
    assert seen == [checkpoint]


BAD_FILES = {
    "writes garbage": "wrote no readable logits file: ",
    "writes another tensor": "wrote a file without a tensor called logits",
    "writes BF16": "wrote no readable logits file: ",
}


@pytest.mark.parametrize("behaviour", BAD_FILES)
def test_a_file_that_cannot_be_used(session: Session, checkpoint: Checkpoint, behaviour: str) -> None:
    session.add(scripted(behaviour))
    run = session.run(behaviour, checkpoint, FEED).result()
    assert (run.logits, run.kind) == (None, "protocol")
    assert run.message.startswith(BAD_FILES[behaviour])
    assert "\n" not in run.message


def test_no_file(session: Session, checkpoint: Checkpoint) -> None:
    session.add(scripted("works"))
    run = session.run("works", checkpoint, FEED).result()
    assert (run.logits, run.kind) == (None, "protocol")
    assert run.message.startswith("wrote no readable logits file: ")


def test_a_file_of_an_earlier_session_is_no_answer(session: Session, checkpoint: Checkpoint) -> None:
    session.add(replace(scripted("writes and dies"), name="same"))
    assert session.run("same", checkpoint, FEED).result().kind == "died"
    session.close()

    again = Session(session.directory)
    again.add(replace(scripted("works"), name="same"))
    run = again.run("same", checkpoint, FEED).result()
    again.close()
    assert run.kind == "protocol"
    assert list(session.directory.rglob("*.safetensors")) == []


def test_two_sessions_in_one_directory_use_other_files(tmp_path: Path, checkpoint: Checkpoint) -> None:
    for _ in range(2):
        session = Session(tmp_path)
        session.add(scripted("says where"))
        session.run("says where", checkpoint, FEED).result()
        session.close()
    files = (tmp_path / "logs" / "says-where.log").read_text().splitlines()
    assert len(files) == len(set(files)) == 2


LOST = {
    "Mortal": ("died", "exited with code 11 during run; last words: out of registers"),
    "Raises": ("failed", "RuntimeError: no kernel for head size 24"),
    "Unable": ("unsupported", "no sequences above 8 tokens"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_failed_run_is_a_sentence(session: Session, toy: Toy, checkpoint: Checkpoint, name: str) -> None:
    session.add(toy(name))
    feeds = [FEED.split([n]) for n in (1, 2, 3)]
    runs = [session.run(f"tests.toys:{name}", checkpoint, feed).result() for feed in feeds]
    failed = Run(None, *LOST[name])
    if name == "Mortal":  # in its second run; the third is served by a new process
        assert [run.kind for run in runs] == ["", "died", ""]
        assert runs[1] == failed
        assert session.starts()[f"tests.toys:{name}"] == 2
    else:
        assert runs == [failed] * 3
        assert session.starts()[f"tests.toys:{name}"] == 1


def test_a_worker_that_cannot_start(session: Session, toy: Toy, checkpoint: Checkpoint) -> None:
    session.add(toy("Stillborn"))
    sentence = "exited with code 1 during hello; last words: libmagic.so: cannot open shared object file"
    with pytest.raises(WorkerError) as caught:
        session.hello("tests.toys:Stillborn")
    assert str(caught.value) == sentence
    run = session.run("tests.toys:Stillborn", checkpoint, FEED).result()
    assert (run.kind, run.message) == ("died", sentence)


def test_workers_start_side_by_side(session: Session, toy: Toy) -> None:
    session.add(toy("Whole"))
    hellos = session.start(["reference", "tests.toys:Whole"])
    assert hellos["reference"].result().releases == ("2604", "4k")
    assert hellos["tests.toys:Whole"].result().releases == ("2604",)
    assert session.spending()["reference"].start > 0


def test_a_backend_that_nobody_added(session: Session, checkpoint: Checkpoint) -> None:
    with pytest.raises(BadInput, match=r"^backend = 'nobody', but should be one of "):
        session.run("nobody", checkpoint, FEED)


def test_a_closed_session_leaves_no_file_behind(toy: Toy, checkpoint: Checkpoint) -> None:
    session = Session()
    directory = session.directory
    session.add(toy("Toy", "mine"))
    session.run("mine", checkpoint, FEED).result()
    assert sorted(path.name for path in directory.rglob("*.safetensors")) == []
    session.close()
    assert not directory.exists()
