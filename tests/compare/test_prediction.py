"""Comparing with a prediction: values to rounding, and NaN exactly where it was predicted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.compare.noise import Truth, measure
from conformance.compare.prediction import compare_predicted, worst
from conformance.compare.verdict import Grade, Verdict

NOISE = 1e-3
EXACT = np.arange(24, dtype=np.float64).reshape(1, 4, 6) / 24
PREDICTED = Truth(EXACT, EXACT.astype(np.float32), np.full((1, 4), NOISE), "float32")
LEAST = np.zeros((1, 4))
CELLS = np.ones((1, 4), dtype=bool)


def broken(*positions: int) -> Truth:
    """The prediction with NaN at some positions, as its own evaluations measure it."""
    exact = EXACT.copy()
    exact[0, list(positions), 2] = np.nan
    return measure(exact, [exact.astype(np.float32)], "float32")


def compared(got: np.ndarray | None, predicted: Truth = PREDICTED, cells: np.ndarray = CELLS) -> Verdict:
    return compare_predicted(got, predicted, np.full((1, 4), NOISE), cells, "float32")


def off(by: float, position: int = 1) -> np.ndarray:
    got = EXACT.astype(np.float32)
    got[0, position, 3] += by
    return got


def test_to_rounding() -> None:
    assert compared(off(0.0)).grade.passes
    assert compared(off(7 * NOISE)).grade is Grade.ROUNDING
    assert compared(off(9 * NOISE)).grade is Grade.DRIFT


def test_the_larger_noise_counts() -> None:
    quiet = replace(PREDICTED, noise=np.full((1, 4), NOISE / 100))
    assert compare_predicted(off(NOISE), quiet, LEAST, CELLS, "float32").ratio == pytest.approx(100, rel=1e-3)
    assert compared(off(NOISE), quiet).ratio == pytest.approx(1, rel=1e-3)


def test_padding_is_not_compared_but_must_be_finite() -> None:
    cells = np.array([[False, False, True, True]])
    assert compared(off(1.0), cells=cells).grade.passes
    assert compared(off(np.nan), cells=cells).problem == (
        "logits[0, 1, 3] = nan, but should be finite (1 of 4 positions)"
    )


def test_nan_where_it_is_predicted() -> None:
    assert compared(off(np.nan), broken(1)).grade.passes
    assert compared(off(np.inf), broken(1)).grade.passes
    # The rest is compared all the same.
    both = off(np.nan)
    both[0, 3, 0] += 1
    assert compared(both, broken(1)).ratio > 900


def test_nan_where_it_is_not_predicted() -> None:
    assert compared(off(np.nan, position=2), broken(1)).problem == (
        "logits[0, 2, 3] = nan, but should be finite (1 of 3 positions)"
    )


def test_a_prediction_of_nan_that_does_not_come_true() -> None:
    assert compared(off(0.0), broken(1, 2)).problem == (
        "logits[0, 1] is finite, but was predicted not to be (2 of 2 positions)"
    )


def test_nan_everywhere_can_be_predicted() -> None:
    got = np.full((1, 4, 6), np.nan, dtype=np.float32)
    assert compared(got, broken(0, 1, 2, 3)).grade is Grade.EXACT


def test_an_evaluation_that_is_not_finite_is_no_licence() -> None:
    """A noise that is NaN or infinite must not make every difference small."""
    wild = np.stack([EXACT[0], EXACT[0]])[:1].astype(np.float32)
    wild[0, 1, 0] = np.inf
    predicted = measure(EXACT, [EXACT.astype(np.float32), wild], "float32")
    assert compared(off(1.0), predicted).problem == (
        "logits[0, 1] is finite, but was predicted not to be (1 of 1 positions)"
    )


def test_the_shape_is_the_predicted_one() -> None:
    assert compared(off(0.0)[..., :5]).problem == "logits: shape = [1, 4, 5], but should be [1, 4, 6]"
    assert compared(None).problem == "no logits"


def test_the_worst_of_several() -> None:
    drift, small = Verdict(Grade.DRIFT, ratio=9), Verdict(Grade.ROUNDING, ratio=1)
    error = Verdict(Grade.ERROR, problem="no logits")
    assert worst([small, drift]) is drift
    assert worst([error, drift]) is error
    assert worst([small, Verdict(Grade.ROUNDING, ratio=0.5)]) is small
