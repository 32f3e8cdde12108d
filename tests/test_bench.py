"""The bench: predictions of a backend are accounted for over all of its cells."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conformance import bench
from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.backends.registry import Backend
from conformance.bench import Bench, Options
from conformance.case import Case, Trial, case
from conformance.claims import Matches, Plan, Witness
from conformance.runs import Spending
from conformance.strategies import feeds
from conformance.workers.host import Bounds, Hello
from tests.inline import InlineSession

ENTRY = """
[[deviation]]
release = "2604"
faults = ["{fault}"]
what = "it is otherwise"
evidence = "docs/plamo3.md §6"
date = 2026-01-31
versions = {{numpy = "{numpy}"}}
"""


def law(name: str, **more: Any) -> Case:
    def plan(trial: Trial) -> Plan:
        return Plan((Matches("reference", trial.drawn),), (Witness("something was fed", True),))

    rows = {"draws": lambda spec: feeds(spec, min_width=24, max_width=24), "law": "a law", **more}
    return case(f"chapter/{name}", **rows)(plan)


class Here(InlineSession):
    """A session as the bench uses it, without processes."""

    def __init__(self, directory: Path, bounds: Bounds) -> None:
        super().__init__(ReferenceAdapter({}), {})

    def add(self, backend: Backend, dress: object = None) -> None:
        self.backends[backend.name] = FaultyAdapter(backend.options)

    def hello(self, name: str) -> Hello:
        adapter = self.backends[name]
        return Hello(("2604",), adapter.capabilities, adapter.dtypes, {}, versions=adapter.versions())

    def hello_again(self, name: str) -> Hello | None:
        return None

    def spending(self) -> dict[str, Spending]:
        return {name: Spending() for name in self.backends}

    def starts(self) -> dict[str, int]:
        return dict.fromkeys(self.backends, 1)


CASES = (law("one"), law("two"), law("elsewhere", families=("another",)))

Cells = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def cells(tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Judges the reference with faults, whose deviation file names others, by some of CASES."""
    monkeypatch.setattr(bench, "Session", Here)
    monkeypatch.setattr(bench, "case_directory", lambda: tmp_path)
    monkeypatch.setattr(bench, "known_cases", lambda: {each.id: each.law for each in CASES})
    (tmp_path / "deviations").mkdir()

    def judged(
        has: list[str],
        recorded: list[str],
        *,
        numpy: str = ">=1",
        dealt: tuple[Case, ...] = CASES,
        run: int | None = None,
    ) -> list[dict[str, Any]]:
        text = "".join(ENTRY.format(fault=fault, numpy=numpy) for fault in recorded)
        (tmp_path / "deviations" / "mine.toml").write_text(text)
        backend = Backend(
            name="mine",
            title="the reference with faults",
            adapter="conformance.backends.reference.faulty:FaultyAdapter",
            options={"faults": has, "releases": ["2604"]},
            releases=("2604",),
        )
        options = Options((backend,), ("plamo3",), ("2604", "4k"), examples=1, shrink=0)
        with closing(Bench(options, tmp_path / "build")) as made:
            found = [cell for each in dealt for cell in made.cells(each)]
            return [made.run(cell, cell.label) for cell in found[:run]]

    return judged


def outcomes(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record["status"], record["reason"]) for record in records]


UNUSED = ("fail", "deviation unused: mine.toml entry 1 can show in no claim of any case; remove it")


def test_a_prediction_that_can_show_nowhere_is_told_once_every_case_has_run(cells: Cells) -> None:
    assert outcomes(cells([], ["position-ids-ignored"])) == [("pass", ""), UNUSED]


def test_not_before_every_case_has_run(cells: Cells) -> None:
    assert outcomes(cells([], ["position-ids-ignored"], run=1)) == [("pass", "")]
    assert outcomes(cells([], ["position-ids-ignored"], dealt=CASES[:2])) == [("pass", "")] * 2
    assert outcomes(cells([], ["position-ids-ignored"], dealt=CASES[1:])) == [("pass", "")]


def test_one_that_shows_is_in_use(cells: Cells) -> None:
    found = cells(["window-one-short"], ["window-one-short"])
    assert outcomes(found) == [("known", "it is otherwise")] * 2
    (known,) = found[0]["known"]
    assert (known["entry"], known["faults"]) == ("mine.toml entry 1", ["window-one-short"])
    assert 0 < known["ratio"] < 8


def test_one_of_other_versions_need_not_be(cells: Cells) -> None:
    assert outcomes(cells([], ["position-ids-ignored"], numpy="<1")) == [("pass", "")] * 2


def test_an_engine_that_was_repaired(cells: Cells) -> None:
    gone = (
        "fail",
        "deviation gone: mine.toml entry 1 (window-one-short) does not show in 'reference'; remove it",
    )
    found = cells([], ["window-one-short"])
    assert outcomes(found) == [gone] * 2
    assert found[0]["bundle"] is None


def test_a_second_bug_leaves_a_bundle_with_the_recorded_faults(cells: Cells) -> None:
    (first, _) = cells(["window-one-short", "window-on-global-layers"], ["window-one-short"])
    assert first["status"] == "fail"
    assert first["findings"][0]["prediction"]["ratio"] > 100
    bundle = Path(first["bundle"]) / "bundle.json"
    assert '"faults": [\n  "window-one-short"\n ]' in bundle.read_text()
    assert "; reference + window-one-short leaves " in first["lines"][0]
