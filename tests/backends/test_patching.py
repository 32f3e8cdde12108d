"""Patched engines: a process for each patch, and nothing of a patch outside of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.backends.patching import PATCH_FILE, Planted
from conformance.backends.registry import Backend
from conformance.checkpoints.store import Checkpoint
from conformance.feeds import Feed, Forward
from conformance.patches import Patch, mark
from conformance.runs import Run, Session
from tests.conftest import ROOT
from tests.toys import Toy

FEED = Feed(tokens=((5, 17, 3, 90, 2, 8, 1),), steps=(Forward(7),))


class Engine:
    """Something to patch."""

    def method(self) -> int:
        return 1

    @staticmethod
    def static(x: int) -> int:
        return x


def test_a_method_is_replaced() -> None:
    planted = Planted("mine")
    engine = type("Other", (Engine,), {})
    planted.replace(engine, "method", lambda method: lambda self: method(self) + 1)
    assert (engine().method(), Engine().method()) == (2, 1)
    assert planted.replaced == ["Other.method"]
    assert planted.reached == 0


def test_a_static_method_stays_static() -> None:
    planted = Planted("mine")
    engine = type("Other", (), {"static": staticmethod(lambda x: x)})
    planted.replace(engine, "static", lambda static: lambda x: static(x) + 1)
    assert (engine.static(1), engine().static(1)) == (2, 2)


def test_what_the_engine_does_not_have_cannot_be_replaced() -> None:
    module = SimpleNamespace(__name__="engine.module")
    with pytest.raises(RuntimeError, match=r"^this engine has no engine\.module\.gone$"):
        Planted("mine").replace(module, "gone", lambda gone: gone)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    options = {"paths": [str(ROOT)], "adapter": "tests.toys:Toy", "imports": ["tests.toy_patches"]}
    backend = Backend(
        name="toy", title="", adapter="conformance.backends.patching:PatchedAdapter", options=options
    )
    session = Session(tmp_path / "session")
    session.add(backend)
    yield session
    session.close()


@pytest.fixture
def run(session: Session, checkpoint: Checkpoint, tmp_path: Path) -> Callable[[str], Run]:
    """Runs the feed with a patch of tests/toy_patches.py, or with none."""

    def run(name: str) -> Run:
        patch = Patch(
            name=name, what="", backend="", where="", apply=f"tests.toy_patches:{name}", releases=()
        )
        marked = mark(checkpoint, patch, tmp_path / "marks") if name else checkpoint
        return session.run("toy", marked, FEED).result()

    return run


def report(session: Session) -> Any:
    hello = session.hello_again("toy")
    assert hello is not None
    return hello.numerics["patch"]


def test_it_says_what_the_other_adapter_says(session: Session) -> None:
    hello = session.hello("toy")
    assert (hello.releases, hello.capabilities, hello.dtypes) == (
        Toy.releases,
        Toy.capabilities,
        tuple(Toy.dtypes),
    )
    assert hello.numerics["patch"] == {}


def test_a_patch_is_in_its_own_runs_alone(
    session: Session, checkpoint: Checkpoint, run: Callable[[str], Run]
) -> None:
    toy = Toy({})
    right = toy.run(toy.prepare(checkpoint.path), FEED)
    vocabulary, window = toy.prepare(checkpoint.path)
    narrow = toy.run((vocabulary, window - 1), FEED)
    assert not np.array_equal(right, narrow)
    first, patched, idle = run(""), run("narrow"), run("idle")
    assert first.logits is not None
    assert patched.logits is not None
    assert idle.logits is not None
    np.testing.assert_array_equal(first.logits, right)
    np.testing.assert_array_equal(patched.logits, narrow)
    np.testing.assert_array_equal(idle.logits, right)


def test_the_worker_reports_the_last_patch(session: Session, run: Callable[[str], Run]) -> None:
    run("narrow")
    assert report(session) == {"name": "narrow", "replaced": ["Toy.prepare"], "reached": 1}
    run("idle")
    assert report(session) == {"name": "idle", "replaced": ["Toy.run"], "reached": 0}


BROKEN = {
    "renamed": "this engine has no Toy.gone",
    "nothing": "tests.toy_patches:nothing replaces nothing",
    "absent": "module 'tests.toy_patches' has no attribute 'absent'",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_patch_that_cannot_be_planted(session: Session, run: Callable[[str], Run], name: str) -> None:
    found = run(name)
    kind = "AttributeError" if name == "absent" else "RuntimeError"
    assert (found.logits, found.kind) == (None, "failed")
    assert found.message == f"RuntimeError: {kind}: {BROKEN[name]}"
    assert report(session) == {"name": name, "reached": 0, "error": f"{kind}: {BROKEN[name]}"}


def test_a_process_that_dies_is_an_error_and_the_worker_goes_on(
    session: Session, run: Callable[[str], Run]
) -> None:
    found = run("deadly")
    assert (found.kind, found.message) == (
        "failed",
        "RuntimeError: the patched process exited with code 7",
    )
    assert report(session)["error"] == "the patched process exited with code 7"
    assert run("").logits is not None
    assert session.starts() == {"toy": 1}


def test_a_marked_checkpoint_links_the_files(checkpoint: Checkpoint, tmp_path: Path) -> None:
    patch = Patch(name="mine", what="", backend="", where="", apply="a:b", releases=())
    marked = mark(checkpoint, patch, tmp_path)
    assert marked.identity == f"{checkpoint.identity}+mine"
    names = {file.name for file in marked.path.iterdir()}
    assert names == {file.name for file in checkpoint.path.iterdir()} | {PATCH_FILE}
    assert (marked.path / PATCH_FILE).read_text() == '{"name": "mine", "apply": "a:b"}'
    assert mark(checkpoint, patch, tmp_path) == marked
