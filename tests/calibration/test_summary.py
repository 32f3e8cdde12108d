"""What the numbers say, counted by hand on a study that never ran."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from conformance.calibration import summary
from conformance.calibration.records import INEXACT, gather
from conformance.calibration.subjects import DTYPES
from conformance.compare.verdict import DRIFT, ROUNDING
from tests.calibration.samples import (
    EFFECTS,
    FACTS,
    bulk,
    effect,
    few,
    group,
    many,
    records,
    sample,
    samples,
)


def test_orders_of_the_reference_are_one_engine() -> None:
    found = {(row.engine, row.against): row for row in summary.rows(few(), "float32")}
    assert set(found) == {("mine", "float64"), ("mine", "whole"), ("reference", "float64")}
    assert found["reference", "float64"].spread.positions == 4
    assert found["mine", "float64"].worst == 2.25
    assert found["mine", "whole"].spread.exact == 2


def test_makes_of_noise_and_inexact_functions_are_no_engines() -> None:
    assert sum(row.spread.positions for row in summary.rows(few(), "float32")) == 15


class TestAlarms:
    def test_they_are_counted_by_position_run_and_model(self) -> None:
        found = summary.alarms(few(), "float32", 2.0)
        assert found.positions == (2, 15)
        assert found.runs == (2, 5)
        assert found.models == (2, 3)

    def test_a_ratio_at_the_bound_is_none(self) -> None:
        assert summary.alarms(few(), "float32", 2.25).positions == (0, 15)

    def test_rates_by_model_are_the_least_certain(self) -> None:
        positions, runs, models = summary.alarms(few(), "float32", 8.0).at_most()
        assert positions < runs < models


class TestTails:
    def test_they_are_of_engines_that_conform(self) -> None:
        tail = summary.tail_of(records(), "float32", 100)
        assert tail.of == 2015
        assert 15 <= tail.beyond <= 30
        assert tail.start == pytest.approx(0.25 + 0.2 * math.log(100), rel=0.1)

    def test_a_later_start_leaves_fewer(self) -> None:
        early, late = (summary.tail_of(records(), "float32", n) for n in (100, 1000))
        assert late.start > early.start
        assert late.beyond < early.beyond

    def test_inexact_evaluations_have_one_of_their_own(self) -> None:
        assert summary.inexact_tail(records(), 100).start > summary.tail_of(records(), "float32", 100).start


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
    def test_it_is_the_least_bound_that_keeps_every_rule(self) -> None:
        choice = summary.choose(records())
        assert (choice.highest, choice.lowest) == (2.25, 900.0)
        assert choice.inexact == pytest.approx(max(bulk(1.5)), rel=1e-4)
        tails = [summary.tail_of(records(), d, n) for d in DTYPES for n in summary.TAIL_STARTS]
        inexact = [summary.inexact_tail(records(), n) for n in summary.TAIL_STARTS]
        assert all(tail.power(choice.measured) < summary.GOAL for tail in tails)
        assert all(tail.power(choice.rounding) < summary.GOAL for tail in [*tails, *inexact])
        below = choice.rounding / 2
        assert below < choice.inexact or any(tail.power(below) >= summary.GOAL for tail in [*tails, *inexact])

    def test_inexact_functions_ask_for_no_less(self) -> None:
        choice = summary.choose(records())
        assert choice.rounding >= choice.measured

    def test_it_is_not_below_the_worst_engine(self) -> None:
        worse = gather(FACTS, [*samples(), *many(), sample(group("bad"), *bulk(20.0))], EFFECTS, [])
        assert summary.choose(worse).measured >= 20 * max(bulk())

    def test_it_is_not_below_the_worst_inexact_evaluation(self) -> None:
        bad = sample(group("reference, functions off by 1", kind=INEXACT, release="4k"), *bulk(20.0))
        choice = summary.choose(gather(FACTS, [*samples(), *many(), bad], EFFECTS, []))
        assert choice.rounding >= 20 * max(bulk())
        assert choice.measured == summary.choose(records()).measured < choice.rounding

    def test_drift_is_in_the_middle_of_what_is_empty(self) -> None:
        choice = summary.choose(records())
        middle = (choice.rounding * choice.lowest) ** 0.5
        assert choice.drift / 2**0.5 <= middle <= choice.drift * 2**0.5

    def test_a_fault_that_is_never_seen_does_not_decide(self) -> None:
        hidden = gather(FACTS, [*samples(), *many()], [*EFFECTS, effect("hidden", 1.1)], [])
        assert summary.choose(hidden) == summary.choose(records())

    def test_no_bound_is_an_error(self) -> None:
        endless = gather(FACTS, [*samples(), *many(), sample(group("bad"), 1e9)], EFFECTS, [])
        with pytest.raises(ValueError, match=r"no bound up to 2\^15"):
            summary.choose(endless)


def test_in_force_is_what_grades() -> None:
    assert summary.in_force() == (ROUNDING, DRIFT)


def test_shares_of_what_is_allowed() -> None:
    found = summary.inexact_rows(few())
    assert {share: row.worst for share, row in found.items()} == {1.0: 2.8, 2.0: 5.6, 4.0: 11.2}


def test_rows_can_be_named_and_chosen() -> None:
    kept = summary.rows(
        records(), "float32", lambda g: g.release, lambda g: g.engine.startswith("reference, r")
    )
    assert [(row.engine, row.spread.positions) for row in kept] == [("4k", 4)]


def test_a_run_without_large_ratios_has_its_worst_all_the_same() -> None:
    without = replace(few(), large=())
    assert max(row.worst for row in summary.rows(without, "float32")) == 2.25
