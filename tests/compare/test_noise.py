"""Noise: the largest distance of correct evaluations, floored at what the dtype can hold."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.compare.noise import half_ulp, measure

NUMBERS = st.floats(-50, 50, width=32)
GRIDS = st.lists(st.lists(NUMBERS, min_size=6, max_size=6), min_size=2, max_size=4)


def grid(values: list[float]) -> np.ndarray:
    """[1, 2, 3] from six numbers."""
    return np.array(values, np.float64).reshape(1, 2, 3)


@given(GRIDS)
def test_noise_is_the_largest_distance_over_evaluations_and_vocabulary(values: list[list[float]]) -> None:
    exact, *runs = (grid(v) for v in values)
    truth = measure(exact, [run.astype(np.float32) for run in runs], "float32")
    for position in range(2):
        row = exact[0, position]
        largest = max(abs(float(run[0, position, v]) - float(row[v])) for run in runs for v in range(3))
        floor = float(half_ulp(np.array(max(abs(x) for x in row)), "float32"))
        assert truth.noise[0, position] == max(largest, floor)


@given(GRIDS)
def test_the_order_of_evaluations_does_not_matter(values: list[list[float]]) -> None:
    exact, *runs = (grid(v) for v in values)
    noises = {measure(exact, order, "float32").noise.tobytes() for order in permutations(runs)}
    assert len(noises) == 1


@given(GRIDS)
def test_one_more_evaluation_never_lowers_it(values: list[list[float]]) -> None:
    exact, *runs = (grid(v) for v in values)
    assert (measure(exact, runs, "float32").noise >= measure(exact, runs[:1], "float32").noise).all()


def test_a_loud_position_does_not_excuse_a_quiet_one() -> None:
    exact = np.zeros((1, 2, 3))
    exact[0, 0] = 1.0
    run = exact.copy()
    run[0, 1, 2] = 0.25
    assert measure(exact, [run], "float32").noise.tolist() == [[2.0**-24, 0.25]]


def test_what_is_kept() -> None:
    exact = np.zeros((1, 1, 2))
    own, other = exact.astype(np.float32), exact.astype(np.float32) + 1
    truth = measure(exact, [own, other], "bfloat16")
    assert truth.logits is exact
    assert truth.in_dtype is own
    assert truth.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("dtype", "one"), [("bfloat16", 2.0**-8), ("float32", 2.0**-24), ("float64", 2.0**-53)]
)
def test_half_ulp_of_one(dtype: str, one: float) -> None:
    assert half_ulp(np.array(1.0), dtype) == one
    assert half_ulp(np.array(1.99), dtype) == one
    assert half_ulp(np.array(2.0), dtype) == 2 * one
    assert half_ulp(np.array(0.5), dtype) == one / 2


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_half_ulp_is_half_the_distance_to_the_next_number(value: float) -> None:
    assert half_ulp(np.array(value), "float32") == float(np.spacing(np.float32(value))) / 2


@given(st.floats(2.0**-100, 2.0**100))
def test_half_ulp_of_float64_just_below_a_power_of_two_too(value: float) -> None:
    below = np.nextafter(2.0 ** np.ceil(np.log2(value)), 0)
    assert half_ulp(below, "float64") == np.spacing(below) / 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_noise_is_never_zero(dtype: str) -> None:
    silent = np.zeros((1, 1, 3))
    assert measure(silent, [silent], dtype).noise[0, 0] > 0
