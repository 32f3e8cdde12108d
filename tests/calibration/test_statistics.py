"""Intervals of rates against published values, and tails against samples whose law is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.calibration.statistics import Tail, clopper_pearson, fit_tail


class TestClopperPearson:
    # The closed forms of none and of all, and tables of the binomial distribution.
    @pytest.mark.parametrize(
        ("events", "trials", "lower", "upper"),
        [
            (0, 10, 0.0, 0.3085),
            (1, 10, 0.00253, 0.4450),
            (5, 10, 0.1871, 0.8129),
            (10, 10, 0.6915, 1.0),
            (4, 20, 0.0573, 0.4366),
            (0, 100_000, 0.0, 3.6888e-5),
        ],
    )
    def test_known_intervals(self, events: int, trials: int, lower: float, upper: float) -> None:
        assert clopper_pearson(events, trials) == pytest.approx((lower, upper), rel=2e-3)

    @settings(deadline=None)
    @given(st.integers(1, 10**7))
    def test_none_has_a_closed_form(self, trials: int) -> None:
        lower, upper = clopper_pearson(0, trials)
        assert lower == 0
        assert upper == pytest.approx(-math.expm1(math.log(0.025) / trials), rel=1e-9)

    @settings(deadline=None)
    @given(st.integers(1, 300), st.data())
    def test_what_did_not_happen_is_its_mirror(self, trials: int, data: st.DataObject) -> None:
        events = data.draw(st.integers(0, trials))
        lower, upper = clopper_pearson(events, trials)
        other = clopper_pearson(trials - events, trials)
        assert (1 - upper, 1 - lower) == pytest.approx(other, abs=1e-9)
        assert lower <= events / trials <= upper

    def test_more_confidence_is_a_wider_interval(self) -> None:
        assert clopper_pearson(0, 50, 0.99)[1] > clopper_pearson(0, 50, 0.95)[1]

    def test_one_sided_ninety_seven_and_a_half_is_the_rule_of_three_point_seven(self) -> None:
        assert clopper_pearson(0, 10**6)[1] == pytest.approx(3.689e-6, rel=1e-3)

    @pytest.mark.parametrize(("events", "trials"), [(0, 0), (3, 2), (-1, 2)])
    def test_impossible_counts_are_refused(self, events: int, trials: int) -> None:
        with pytest.raises(ValueError, match="should be 0 to the number of trials"):
            clopper_pearson(events, trials)


class TestTail:
    def test_both_go_through_what_was_seen(self) -> None:
        tail = Tail(start=2.0, beyond=10, of=1000, excess=0.5, index=8.0)
        assert tail.exponential(2.0) == tail.power(2.0) == 0.01
        assert tail.exponential(2.5) == pytest.approx(0.01 / math.e)
        assert tail.power(4.0) == pytest.approx(0.01 / 2**8)

    def test_the_power_law_is_the_heavier_one(self) -> None:
        tail = fit_tail(dict.fromkeys([1.6, 1.7, 1.9, 2.4], 1), 1.5, 100)
        assert all(tail.power(ratio) > tail.exponential(ratio) for ratio in (3.0, 4.0, 8.0))

    def test_exponential_samples_are_recognised(self) -> None:
        draws = 1.5 + np.random.default_rng(1).exponential(0.25, 20_000)
        tail = fit_tail(dict.fromkeys(draws, 1), 1.5, 10**6)
        assert tail.excess == pytest.approx(0.25, rel=0.03)
        assert tail.exponential(3.0) == pytest.approx(0.02 * math.exp(-6), rel=0.2)

    def test_power_law_samples_are_recognised(self) -> None:
        draws = 2.0 * (1 + np.random.default_rng(1).pareto(9.0, 20_000))
        assert fit_tail(dict.fromkeys(draws, 1), 2.0, 10**6).index == pytest.approx(9.0, rel=0.03)

    def test_ratios_below_the_start_are_left_out(self) -> None:
        assert fit_tail({0.1: 9, 1.6: 1, 1.7: 2}, 1.5, 20) == fit_tail({1.6: 1, 1.7: 2}, 1.5, 20)

    def test_a_ratio_counts_as_often_as_it_was_met(self) -> None:
        tail = fit_tail({1.6: 3, 2.0: 1}, 1.5, 20)
        assert (tail.beyond, tail.excess) == (4, pytest.approx(0.2))
        assert tail.index == pytest.approx(4 / (3 * math.log(1.6 / 1.5) + math.log(2.0 / 1.5)))

    def test_one_ratio_is_no_tail(self) -> None:
        with pytest.raises(ValueError, match=r"1 ratios lie beyond 1\.5, but a tail needs two"):
            fit_tail({1.0: 5, 1.6: 1}, 1.5, 10)
