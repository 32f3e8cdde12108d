"""Comparing a run with a predicted one, which may be broken itself: not finite, or of another shape."""

from __future__ import annotations

import numpy as np

from conformance.compare.noise import Truth
from conformance.compare.verdict import Grade, Verdict, compare, unusable

__all__ = ["compare_predicted", "worst"]


def compare_predicted(
    got: np.ndarray | None, predicted: Truth, least: np.ndarray, cells: np.ndarray, dtype: str
) -> Verdict:
    """Grade `got` against a prediction; it must not be finite exactly where that is predicted.

    Args:
        got: logits [B, T, V'] of the run under test, or None where it gave none.
        predicted: of shape [B, T, V'], with the noise of its own evaluations.
        least: float64 [B, T], the noise that each position has at least.
        cells: bool [B, T], the positions that hold real tokens.
        dtype: the dtype that the run computed in.
    """
    broken = ~np.isfinite(predicted.noise)
    for logits in (predicted.logits, predicted.in_dtype):
        broken |= ~np.isfinite(logits).all(axis=-1)
    shown = cells & ~broken
    problem = unusable(got, np.zeros_like(predicted.logits), np.ones_like(cells), ~broken)
    if problem or got is None:
        return Verdict(Grade.ERROR, problem=problem)
    unbroken = broken & np.isfinite(got).all(axis=-1)
    if unbroken.any():
        row, position = np.argwhere(unbroken)[0]
        counts = f"({int(unbroken.sum())} of {int(broken.sum())} positions)"
        return Verdict(
            Grade.ERROR, problem=f"logits[{row}, {position}] is finite, but was predicted not to be {counts}"
        )
    if not shown.any():
        return Verdict(Grade.EXACT)
    floor = np.maximum(predicted.noise, least)
    return compare(got, predicted.logits, floor, shown, dtype)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict with the worst grade, and among those the one with the largest ratio."""
    order = list(Grade)
    return max(verdicts, key=lambda verdict: (order.index(verdict.grade), verdict.ratio))
