"""What the numbers say, counted by hand on a study that never ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.calibration import summary
from conformance.calibration.records import gather
from conformance.compare.verdict import DRIFT, ROUNDING
from tests.calibration.samples import EFFECTS, FACTS, effect, group, level, records, sample, samples


def test_orders_of_the_reference_are_one_engine() -> None:
    found = {(row.engine, row.against): row for row in summary.rows(records(), "float32")}
    assert set(found) == {("mine", "float64"), ("mine", "whole"), ("reference", "float64")}
    assert found["reference", "float64"].spread.positions == 4
    assert found["mine", "float64"].worst == 2.25
    assert found["mine", "whole"].spread.exact == 2


def test_makes_of_noise_and_inexact_functions_are_no_engines() -> None:
    assert sum(row.spread.positions for row in summary.rows(records(), "float32")) == 15


class TestAlarms:
    def test_they_are_counted_by_position_run_and_model(self) -> None:
        found = summary.alarms(records(), "float32", 2.0)
        assert found.positions == (2, 15)
        assert found.runs == (2, 5)
        assert found.models == (2, 3)

    def test_a_ratio_at_the_bound_is_none(self) -> None:
        assert summary.alarms(records(), "float32", 2.25).positions == (0, 15)

    def test_rates_by_model_are_the_least_certain(self) -> None:
        positions, runs, models = summary.alarms(records(), "float32", 8.0).at_most()
        assert positions < runs < models


def test_the_tail_is_that_of_engines_that_conform() -> None:
    tail = summary.tail_of(records(), "float32", 1.5)
    assert (tail.beyond, tail.of) == (5, 15)
    assert tail.excess == pytest.approx((0.1 + 0.75 + 0.25 + 0.6 + 0.05) / 5)


class TestFaults:
    def test_the_model_that_shows_one_least_counts(self) -> None:
        found = {one.fault: one for one in summary.reaches(records(), "float32")}
        assert (found["loud"].least, found["loud"].most, found["loud"].models) == (70_000, 90_000, 2)

    def test_those_that_show_least_come_first(self) -> None:
        assert [one.fault for one in summary.reaches(records(), "bfloat16")] == [
            "quiet",
            "cast order",
            "loud",
        ]

    def test_below_a_bound_on_some_model_is_unseen(self) -> None:
        assert [one.fault for one in summary.unseen(records(), "bfloat16", 8.0)] == ["quiet"]
        assert [one.fault for one in summary.unseen(records(), "bfloat16", 9.0)] == ["quiet", "loud"]

    def test_other_correct_evaluations_are_not(self) -> None:
        assert "cast order" not in [one.fault for one in summary.unseen(records(), "bfloat16", 64.0)]


class TestChoice:
    def test_inexact_functions_decide_here(self) -> None:
        choice = summary.choose(records())
        assert (choice.highest, choice.inexact, choice.lowest) == (2.25, 2.8, 900.0)
        assert choice.rounding >= 4.0

    def test_it_grows_with_the_worst_engine(self) -> None:
        worse = gather(FACTS, [*samples(), sample(group("bad"), 9.5)], EFFECTS, [level("float32")])
        assert summary.choose(worse).rounding >= 16.0

    def test_drift_is_in_the_middle_of_what_is_empty(self) -> None:
        choice = summary.choose(records())
        middle = (choice.rounding * choice.lowest) ** 0.5
        assert choice.drift / 2**0.5 <= middle <= choice.drift * 2**0.5

    def test_a_fault_that_is_never_seen_does_not_decide(self) -> None:
        hidden = gather(FACTS, samples(), [*EFFECTS, effect("hidden", 1.1)], [level("float32")])
        assert summary.choose(hidden) == summary.choose(records())

    def test_no_bound_is_an_error(self) -> None:
        endless = gather(FACTS, [*samples(), sample(group("bad"), 1e9)], EFFECTS, [level("float32")])
        with pytest.raises(ValueError, match=r"no bound up to 2\^15"):
            summary.choose(endless)


def test_in_force_is_what_grades() -> None:
    assert summary.in_force() == (ROUNDING, DRIFT)


def test_shares_of_what_is_allowed() -> None:
    found = summary.inexact_rows(records())
    assert {share: row.worst for share, row in found.items()} == {1.0: 2.8, 2.0: 5.6, 4.0: 11.2}


def test_rows_can_be_named_and_chosen() -> None:
    kept = summary.rows(
        records(), "float32", lambda g: g.release, lambda g: g.engine.startswith("reference, r")
    )
    assert [(row.engine, row.spread.positions) for row in kept] == [("4k", 4)]


def test_a_run_without_large_ratios_has_its_worst_all_the_same() -> None:
    few = replace(records(), large=())
    assert max(row.worst for row in summary.rows(few, "float32")) == 2.25
