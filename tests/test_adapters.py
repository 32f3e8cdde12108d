"""Break one thing of the oracle, and the cases turn red: each of tests/adapters.py on real cases."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.registry import Backend
from conformance.case import Case, case_directory
from conformance.cells import Cell, CellResult, judge
from conformance.workers.host import Hello
from tests import adapters
from tests.inline import InlineSession

BROKEN = [
    (adapters.WindowPlusOne, "2604"),
    (adapters.OffsetForgotten, "2604"),
    (adapters.OffsetForgotten, "4k"),
    (adapters.GroupsTiled, "2604"),
    (adapters.GroupsTiled, "4k"),
    (adapters.AmplitudeDropped, "2604"),
    (adapters.QueryNormSkippedLocally, "2604"),
    (adapters.QueryNormSkippedLocally, "4k"),
]
REFERENCE = ReferenceAdapter({})


def case_of(case_id: str) -> Case:
    """A case of cases/, by its id."""
    chapter = case_id.partition("/")[0]
    file = case_directory() / f"test_{chapter}.py"
    spec = importlib.util.spec_from_file_location(f"chapter_{chapter}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (found,) = [x for x in vars(module).values() if isinstance(x, Case) and x.id == case_id]
    return found


def result_of(broken: type[ReferenceAdapter], what: Case, release: str, checkpoints: Path) -> CellResult:
    adapter = broken({})
    cell = Cell(what, Backend(name="broken", title=""), "plamo3", release)
    hello = Hello((release,), frozenset(adapter.capabilities), tuple(adapter.dtypes), {})
    session = InlineSession(REFERENCE, {"broken": adapter})
    return judge(session, cell, hello, (), examples=1, checkpoints=checkpoints)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize(("broken", "release"), BROKEN)
def test_one_thing_broken_is_red(broken: type[ReferenceAdapter], release: str, checkpoints: Path) -> None:
    result = result_of(broken, case_of("reference/whole"), release, checkpoints)
    assert (result.status, result.reason) == ("fail", "1 of 1 claims failed")
    assert result.grade == "divergent"


@pytest.mark.parametrize("release", ["2604", "4k"])
def test_nothing_broken_is_green(release: str, checkpoints: Path) -> None:
    result = result_of(adapters.Untouched, case_of("reference/whole"), release, checkpoints)
    assert (result.status, result.reason) == ("pass", "")


def test_a_window_off_by_one_shows_where_the_window_ends(checkpoints: Path) -> None:
    result = result_of(adapters.WindowPlusOne, case_of("reference/whole"), "2604", checkpoints)
    (finding,) = result.findings
    assert finding.outcome.verdict.first_bad is not None
    assert finding.outcome.verdict.first_bad.position == finding.trial.spec.window_size


def test_a_window_off_by_one_is_measured(checkpoints: Path) -> None:
    """The models of this case have one layer, whose span can be counted."""
    result = result_of(adapters.WindowPlusOne, case_of("window/local-prefill"), "2604", checkpoints)
    assert result.status == "fail"
    for finding in result.findings:
        window = finding.trial.spec.window_size
        assert finding.outcome.measured["span"] == {"seen": window + 1, "expected": window}


def test_what_agrees_with_itself_is_caught_by_the_reference_alone(checkpoints: Path) -> None:
    """A forgotten offset is the same in every chunking: laws about itself hold, laws about meaning do not."""
    result = result_of(adapters.OffsetForgotten, case_of("decode/token-by-token"), "2604", checkpoints)
    labels = {finding.outcome.label for finding in result.findings}
    assert labels
    assert all(label.startswith("reference: ") for label in labels)
    assert len(labels) == result.claims - sum(label.startswith("whole: ") for label in _labels(result))


def _labels(result: CellResult) -> list[str]:
    (trial,) = {id(finding.trial): finding.trial for finding in result.findings}.values()
    return [claim.label for claim in case_of("decode/token-by-token").plan(trial).claims]
