"""Ratios are those of `compare`; an order judged by the others has no say in its own noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.calibration.ratios import leave_one_out, noise_of, of_neighbours, ratios_of
from conformance.compare.noise import half_ulp, measure
from conformance.compare.verdict import compare

SHAPE = (2, 5, 7)


def draws(seed: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, SHAPE)


def evaluations(exact: np.ndarray, count: int = 4) -> list[np.ndarray]:
    return [(exact + draws(seed, 1e-5)).astype(np.float32) for seed in range(1, count + 1)]


@settings(deadline=None)
@given(st.integers(0, 2**16))
def test_the_largest_is_the_ratio_of_the_verdict(seed: int) -> None:
    exact = draws(seed)
    got = evaluations(exact, 1)[0]
    noise = np.abs(draws(seed + 1)[..., 0]) * 1e-5 + 1e-7
    cells = np.ones(SHAPE[:2], dtype=bool)
    assert ratios_of(got, exact, noise).max() == compare(got, exact, noise, cells, "float32").ratio


def test_noise_is_that_of_the_cases() -> None:
    exact = draws(0)
    runs = evaluations(exact)
    np.testing.assert_array_equal(noise_of(exact, runs, "float32"), measure(exact, runs, "float32").noise)


class TestLeaveOneOut:
    def test_each_is_judged_by_the_noise_of_the_others(self) -> None:
        exact = draws(0)
        runs = evaluations(exact)
        distances = [np.abs(run - exact).max(axis=-1) for run in runs]
        for index, ratios in enumerate(leave_one_out(exact, runs, "float32")):
            others = np.max([d for place, d in enumerate(distances) if place != index], axis=0)
            floor = half_ulp(np.abs(exact).max(axis=-1), "float32")
            np.testing.assert_array_equal(ratios, distances[index] / np.maximum(others, floor))

    def test_the_worst_one_is_beyond_one_and_among_all_it_would_not_be(self) -> None:
        exact = draws(0)
        runs = evaluations(exact)
        left_out = np.max(leave_one_out(exact, runs, "float32"), axis=0)
        assert (left_out > 1).all()
        together = noise_of(exact, runs, "float32")
        assert max(ratios_of(run, exact, together).max() for run in runs) == 1

    def test_equal_others_leave_the_floor(self) -> None:
        exact = draws(0).astype(np.float32).astype(np.float64)
        right = exact.astype(np.float32)
        wrong = right.copy()
        wrong[0, 0, 0] += 1
        ratios = leave_one_out(exact, [right, wrong], "float32")[1]
        assert ratios[0, 0] > 1e5
        assert ratios[1].max() == 0

    def test_one_alone_has_no_others(self) -> None:
        exact = draws(0)
        with pytest.raises(ValueError, match="1 evaluation, but there should be others"):
            leave_one_out(exact, evaluations(exact, 1), "float32")


class TestNeighbours:
    def test_the_largest_within_reach(self) -> None:
        noise = np.array([[1.0, 5.0, 2.0, 1.0, 1.0], [3.0, 1.0, 1.0, 1.0, 4.0]])
        assert of_neighbours(noise, 1).tolist() == [[5, 5, 5, 2, 1], [3, 3, 1, 4, 4]]
        assert of_neighbours(noise, 2).tolist() == [[5, 5, 5, 5, 2], [3, 3, 4, 4, 4]]

    def test_none_within_reach_is_the_noise_itself(self) -> None:
        noise = np.array([[1.0, 5.0, 2.0]])
        np.testing.assert_array_equal(of_neighbours(noise, 0), noise)
