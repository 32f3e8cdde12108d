"""Verdicts: everything that a comparison must not let pass, and what it must say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.compare.verdict import DRIFT, ROUNDING, Grade, Place, Verdict, compare

NOISE = 2.0**-20
ROWS, WIDTH, VOCABULARY = 2, 500, 40


def logits(rows: int = ROWS, width: int = WIDTH, vocabulary: int = VOCABULARY) -> np.ndarray:
    """Values of magnitude up to 8, no two top tokens close."""
    index = np.arange(rows * width * vocabulary).reshape(rows, width, vocabulary)
    return (8 * np.sin(1.0 + index * 0.7)).astype(np.float32)


def judged(got: np.ndarray | None, want: np.ndarray, **changes: Any) -> Verdict:
    """All positions compared, at one noise."""
    arguments: dict[str, Any] = {
        "noise": np.full(want.shape[:2], NOISE),
        "cells": np.ones(want.shape[:2], bool),
        "dtype": "float32",
        **changes,
    }
    return compare(
        got, want, arguments.pop("noise"), arguments.pop("cells"), arguments.pop("dtype"), **arguments
    )


def off_by(*places: tuple[int, int, int], by: float = 8.0 * ROUNDING * NOISE) -> np.ndarray:
    values = logits().astype(np.float64)
    for place in places:
        values[place] += by
    return values


def test_equal_to_the_bit() -> None:
    verdict = judged(logits(), logits())
    assert verdict == Verdict(Grade.EXACT, compared=1000, worst=Place(0, 0))
    assert verdict.grade.passes


class TestGrades:
    @pytest.mark.parametrize(
        ("ratio", "grade"),
        [
            (0.5, Grade.ROUNDING),
            (ROUNDING, Grade.ROUNDING),
            (ROUNDING + 1, Grade.DRIFT),
            (DRIFT, Grade.DRIFT),
            (DRIFT + 1, Grade.DIVERGENT),
        ],
    )
    def test_by_the_ratio_of_error_to_noise(self, ratio: float, grade: Grade) -> None:
        want = np.zeros((1, 3, 4))
        got = want.copy()
        got[0, 1, 2] = ratio * NOISE
        verdict = judged(got, want)
        assert (verdict.grade, verdict.ratio) == (grade, ratio)
        assert verdict.grade.passes == (ratio <= ROUNDING)

    def test_the_ratio_is_the_smallest_bound_that_would_have_passed(self) -> None:
        noise = np.full((ROWS, WIDTH), NOISE)
        noise[0, 7] = 100 * NOISE
        verdict = judged(off_by((0, 7, 3), by=50 * NOISE), logits().astype(np.float64), noise=noise)
        assert verdict.ratio == pytest.approx(0.5)
        assert verdict.max_abs == pytest.approx(50 * NOISE)
        assert verdict.grade is Grade.ROUNDING


class TestOneWrongRow:
    def test_among_a_thousand_right_ones(self) -> None:
        verdict = judged(off_by((1, 321, 0)), logits().astype(np.float64))
        assert verdict.grade is Grade.DRIFT
        assert (verdict.compared, verdict.bad) == (1000, 1)
        assert verdict.first_bad == verdict.worst == Place(1, 321)
        assert str(verdict.worst) == "row 1 position 321"

    def test_the_mean_hides_it_and_decides_nothing(self) -> None:
        verdict = judged(off_by((1, 321, 0)), logits().astype(np.float64))
        assert verdict.mean_abs < NOISE
        assert not verdict.grade.passes

    def test_first_bad_is_not_the_worst(self) -> None:
        got = off_by((0, 5, 1)) + off_by((1, 3, 2), by=1.0) - logits()
        verdict = judged(got, logits().astype(np.float64))
        assert (verdict.first_bad, verdict.worst, verdict.bad) == (Place(0, 5), Place(1, 3), 2)

    def test_outside_the_compared_positions_it_is_padding(self) -> None:
        cells = np.ones((ROWS, WIDTH), bool)
        cells[1, 321] = False
        verdict = judged(off_by((1, 321, 0), by=100.0), logits().astype(np.float64), cells=cells)
        assert (verdict.grade, verdict.compared) == (Grade.EXACT, 999)


class TestNotFinite:
    @pytest.mark.parametrize(("value", "name"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
    def test_one_value_in_a_token_that_nobody_samples(self, value: float, name: str) -> None:
        got = logits()
        got[1, 17, VOCABULARY - 1] = value
        verdict = judged(got, logits())
        assert verdict == Verdict(
            Grade.ERROR, problem=f"logits[1, 17, 39] = {name}, but should be finite (1 of 1000 positions)"
        )

    def test_in_padding_only_where_it_has_to_be_finite(self) -> None:
        cells = np.ones((ROWS, WIDTH), bool)
        cells[0, 0] = False
        got = logits()
        got[0, 0, 3] = np.nan
        assert judged(got, logits(), cells=cells).grade is Grade.EXACT
        verdict = judged(got, logits(), cells=cells, finite=np.ones((ROWS, WIDTH), bool))
        assert verdict.problem == "logits[0, 0, 3] = nan, but should be finite (1 of 1000 positions)"

    def test_in_the_run_that_it_is_compared_with(self) -> None:
        want = logits()
        want[0, 2, 1] = np.nan
        assert judged(logits(), want) == Verdict(
            Grade.ERROR, problem="other logits[0, 2, 1] = nan, but should be finite (1 of 1000 positions)"
        )
        assert judged(want, want).problem == (
            "logits[0, 2, 1] = nan, but should be finite (1 of 1000 positions)"
        )


class TestUnusable:
    def test_no_logits(self) -> None:
        assert judged(None, logits()) == Verdict(Grade.ERROR, problem="no logits")

    @pytest.mark.parametrize(
        ("cut", "shape"),
        [
            (np.s_[:, :-1], "[2, 499, 40]"),
            (np.s_[:, 1:], "[2, 499, 40]"),
            (np.s_[:1], "[1, 500, 40]"),
            (np.s_[..., :-1], "[2, 500, 39]"),
            (np.s_[0], "[500, 40]"),
            (np.s_[..., 0], "[2, 500]"),
            (np.s_[None], "[1, 2, 500, 40]"),
        ],
    )
    def test_a_shape_is_never_trimmed_to_fit(self, cut: Any, shape: str) -> None:
        verdict = judged(logits()[cut], logits())
        assert verdict == Verdict(Grade.ERROR, problem=f"logits: shape = {shape}, but should be [2, 500, 40]")

    def test_a_padded_vocabulary_is_not_trimmed_either(self) -> None:
        got = np.concatenate([logits(), logits()[..., :8]], axis=-1)
        assert judged(got, logits()).problem == "logits: shape = [2, 500, 48], but should be [2, 500, 40]"

    def test_two_runs_that_are_short_by_the_same_row(self) -> None:
        short = logits()[:, :-1]
        verdict = judged(short, short, cells=np.ones((ROWS, WIDTH), bool), noise=np.ones((ROWS, WIDTH)))
        assert verdict.problem == "logits: shape = [2, 499, 40], but should be [2, 500, 40]"

    def test_the_other_run_is_short(self) -> None:
        cells = np.ones((ROWS, WIDTH), bool)
        verdict = judged(logits(), logits()[:, :-1], cells=cells, noise=np.ones((ROWS, WIDTH)))
        assert verdict.problem == "other logits: shape = [2, 499, 40], but should be [2, 500, 40]"

    @pytest.mark.parametrize("dtype", [np.float16, np.int32, np.complex64, object])
    def test_a_dtype_that_no_run_may_have(self, dtype: type) -> None:
        verdict = judged(logits().astype(dtype), logits())
        name = np.dtype(dtype).name
        assert verdict == Verdict(
            Grade.ERROR, problem=f"logits: dtype = {name}, but should be float32 or float64"
        )

    def test_nothing_to_compare(self) -> None:
        verdict = judged(logits(), logits(), cells=np.zeros((ROWS, WIDTH), bool))
        assert verdict == Verdict(Grade.ERROR, problem="no position was compared")

    def test_the_order_of_checks(self) -> None:
        """Each is reported although every later one is wrong too."""
        got = logits().astype(np.float16)
        got[0, 0, 0] = np.nan
        none = np.zeros((ROWS, WIDTH), bool)
        everywhere = np.ones((ROWS, WIDTH), bool)
        problems = [
            judged(None, logits(), cells=none).problem,
            judged(got[:, :-1], logits(), cells=none, finite=everywhere).problem,
            judged(got, logits(), cells=none, finite=everywhere).problem,
            judged(got.astype(np.float32), logits(), cells=none, finite=everywhere).problem,
            judged(got.astype(np.float32), logits(), finite=everywhere).problem,
        ]
        assert problems == [
            "no logits",
            "logits: shape = [2, 499, 40], but should be [2, 500, 40]",
            "logits: dtype = float16, but should be float32 or float64",
            "no position was compared",
            "logits[0, 0, 0] = nan, but should be finite (1 of 1000 positions)",
        ]


class TestWhatItSays:
    def test_a_scale_of_one_in_ten_thousand_is_seen(self) -> None:
        want = logits().astype(np.float64)
        verdict = judged(want * 1.0001, want)
        assert verdict.grade is Grade.DIVERGENT
        assert verdict.max_relative == pytest.approx(1e-4)
        assert verdict.flips == verdict.near_ties == 0
        assert verdict.shift is None

    def test_a_uniform_shift_changes_values_but_no_distribution(self) -> None:
        want = logits().astype(np.float64)
        verdict = judged(want + 0.25, want)
        assert verdict.grade is Grade.DIVERGENT
        assert verdict.shift == 0.25
        assert (verdict.flips, verdict.near_ties) == (0, 0)
        assert verdict.max_kl < 1e-12
        assert verdict.bad == 1000

    def test_each_row_may_have_its_own_shift(self) -> None:
        want = logits().astype(np.float64)
        by = np.linspace(-1, 0.5, ROWS * WIDTH).reshape(ROWS, WIDTH, 1)
        assert judged(want + by, want).shift == -1.0

    def test_a_shift_that_does_not_explain_everything_is_none(self) -> None:
        want = logits().astype(np.float64)
        got = want + 0.25
        got[0, 0, 0] += 16 * NOISE
        assert judged(got, want).shift is None

    def test_rounding_has_no_shift(self) -> None:
        want = logits().astype(np.float64)
        assert judged(want + NOISE, want).shift is None

    def test_a_flip_and_a_near_tie(self) -> None:
        want = np.zeros((1, 2, 4))
        want[0, 0] = [3.0, 3.0 - 4 * NOISE, 0, 0]  # its two top tokens are within the noise
        want[0, 1] = [3.0, 2.0, 0, 0]
        got = want.copy()
        got[0, :, :2] = want[0, :, 1::-1]
        verdict = judged(got, want)
        assert (verdict.near_ties, verdict.flips) == (1, 1)

    def test_the_margin_of_a_near_tie_is_twice_what_rounding_may_move(self) -> None:
        for margin, flips in ((2 * ROUNDING * NOISE, 0), (2 * ROUNDING * NOISE + NOISE, 1)):
            want = np.array([[[1.0 + margin, 1.0]]])
            got = np.array([[[1.0, 1.0 + NOISE]]])
            assert judged(got, want).flips == flips

    def test_units_of_the_last_place_of_the_largest_logit(self) -> None:
        want = np.array([[[4.0, 1.0]]])
        got = np.array([[[4.0, 1.0 + 3 * 2.0**-21]]])
        assert judged(got, want).max_ulp == 3
        assert judged(got, want, dtype="bfloat16").max_ulp == 3 * 2.0**-16

    @given(st.lists(st.floats(-30, 30), min_size=8, max_size=8))
    def test_kl_against_its_definition(self, values: list[float]) -> None:
        left, right = (np.array(part, np.longdouble) for part in (values[:4], values[4:]))
        p, q = (np.exp(part) / np.exp(part).sum() for part in (right, left))
        direct = float((p * np.log(p / q)).sum())
        verdict = judged(left.astype(np.float64).reshape(1, 1, 4), right.astype(np.float64).reshape(1, 1, 4))
        assert verdict.max_kl == pytest.approx(direct, rel=1e-9, abs=1e-12)

    def test_kl_takes_the_worst_position(self) -> None:
        want = np.zeros((1, 3, 2))
        got = want.copy()
        got[0, 1, 0] = np.log(3.0)  # 3/4, 1/4 instead of 1/2, 1/2
        expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
        assert judged(got, want).max_kl == pytest.approx(expected)

    def test_kl_of_extreme_logits_is_finite(self) -> None:
        want = np.array([[[3e38, -3e38]]], np.float32)
        assert np.isfinite(judged(-want, want).max_kl)
