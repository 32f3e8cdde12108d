"""Models that Transformers has code of its own for: no remote code runs, and masks are of its own making."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conformance.backends.registry import backend_named
from conformance.backends.released import code_words, dresser
from conformance.checkpoints.store import Checkpoint, open_checkpoint, write_checkpoint
from conformance.claims import Matches
from conformance.feeds import Feed, Forward
from conformance.runs import Run, Session
from tests.families.gemma4.sizes import tiny, tiny_sharing

BACKENDS = ("gemma4-eager", "gemma4-sdpa")
ROW = (3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38)
WIDTH = len(ROW)
PLAIN = Feed(tokens=(ROW,), steps=(Forward(WIDTH),))
PACKED = Feed(
    tokens=(ROW,),
    steps=(Forward(WIDTH),),
    positions=((*range(5), *range(WIDTH - 5)),),
    segments=((0,) * 5 + (1,) * (WIDTH - 5),),
)
FEEDS = {
    "whole": PLAIN,
    "one at a time": PLAIN.token_by_token(2),
    "packed": PACKED,
    "packed, one at a time": PACKED.token_by_token(7),
    "packed, beside a padded row": Feed(
        tokens=(ROW, ROW),
        steps=(Forward(WIDTH),),
        lengths=(WIDTH - 3, WIDTH),
        padding="left",
        positions=((0, 0, 0, *range(WIDTH - 3)), PACKED.positions[0] if PACKED.positions else ()),
        segments=((0,) * WIDTH, PACKED.segments[0] if PACKED.segments else ()),
    ),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = Session()
    for name in BACKENDS:
        backend = backend_named(name)
        problem = backend.unavailable()
        if problem:
            pytest.fail(problem)
        session.add(backend, dresser(None, tmp_path_factory.mktemp("dressed")))
    yield session
    session.close()


def run_of(session: Session, backend: str, checkpoint: Checkpoint, feed: Feed) -> Run:
    return session.wait("engine", session.run(backend, checkpoint, feed))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()], ids=["own", "sharing"])
@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
def test_a_library_s_own_model_runs_every_feed_as_the_reference_does(
    session: Session, backend: str, spec: object, feed: Feed, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path, spec, 1)  # type: ignore[arg-type]
    runs = {feed.key: run_of(session, backend, checkpoint, feed)}
    truths = {feed.key: session.wait("reference", session.truth(checkpoint, feed))}
    outcome = Matches("reference", feed).judge(runs, truths)
    assert outcome.holds, (outcome, runs[feed.key].message)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_says_what_attention_it_has_and_whose_code_it_runs(
    session: Session, backend: str, tmp_path: Path
) -> None:
    run_of(session, backend, write_checkpoint(tmp_path, tiny(), 1), PLAIN)
    hello = session.hello_again(backend)
    assert hello is not None
    assert hello.numerics["attention"] == backend.removeprefix("gemma4-")
    assert hello.releases == ("gemma-4",)
    assert code_words(backend_named(backend), None) == "its own"


def test_generated_checkpoints_carry_no_code(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, tiny(), 1)
    assert sorted(file.name for file in checkpoint.path.iterdir()) == ["config.json", "model.safetensors"]
    assert "auto_map" not in json.loads((checkpoint.path / "config.json").read_text())


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A checkpoint of a user's with code in it, which must not run."""
    path = tmp_path / "brought"
    shutil.copytree(write_checkpoint(tmp_path, tiny(), 1).path, path)
    config = json.loads((path / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "trap.Config", "AutoModelForCausalLM": "trap.Model"}
    (path / "config.json").write_text(json.dumps(config))
    (path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nraise SystemExit\n")
    return path


def test_code_that_a_user_s_directory_brings_does_not_run(
    session: Session, hostile: Path, tmp_path: Path
) -> None:
    brought = run_of(session, "gemma4-eager", open_checkpoint(hostile), PLAIN)
    generated = run_of(session, "gemma4-eager", write_checkpoint(tmp_path, tiny(), 1), PLAIN)
    assert not (tmp_path / "sprung").exists()
    assert brought.logits is not None, brought.message
    assert generated.logits is not None
    assert np.array_equal(brought.logits, generated.logits)


def test_code_is_left_out_of_what_a_backend_is_given(hostile: Path, tmp_path: Path) -> None:
    given = dresser(None, tmp_path / "dressed")(open_checkpoint(hostile))
    assert sorted(file.name for file in given.path.iterdir()) == ["config.json", "model.safetensors"]
    assert "auto_map" not in json.loads((given.path / "config.json").read_text())


def test_code_does_not_run_where_it_was_left_in_either(hostile: Path, tmp_path: Path) -> None:
    with_code = Session()
    try:
        with_code.add(backend_named("gemma4-sdpa"))  # nothing is laid in the code's place
        run = run_of(with_code, "gemma4-sdpa", open_checkpoint(hostile), PLAIN)
    finally:
        with_code.close()
    assert not (tmp_path / "sprung").exists()
    assert run.logits is not None, run.message
