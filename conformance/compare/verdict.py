"""Verdicts: two runs compared position by position and graded by the ratio of error to noise.

Pure functions of arrays. The order of checks is fixed: presence, shape, dtype, finiteness, values.
Nothing is trimmed to fit, and nothing is averaged before it is graded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from conformance.compare.noise import half_ulp

__all__ = ["DRIFT", "ROUNDING", "Grade", "Place", "Verdict", "compare", "unusable"]

# The only constants of the grading: largest error / noise that counts as rounding, and as drift.
# docs/tolerances.md shows the data that they come from.
ROUNDING = 8.0
DRIFT = 64.0


class Grade(Enum):
    """How two runs relate, best first."""

    EXACT = "exact"
    ROUNDING = "rounding"
    DRIFT = "drift"
    DIVERGENT = "divergent"
    ERROR = "error"

    @property
    def passes(self) -> bool:
        """May an implementation that conforms get this grade?"""
        return self in (Grade.EXACT, Grade.ROUNDING)


@dataclass(frozen=True)
class Place:
    """One position: row of the batch, and column of the feed, both 0-based."""

    row: int
    position: int

    def __str__(self) -> str:
        return f"row {self.row} position {self.position}"


@dataclass(frozen=True)
class Verdict:
    """One graded comparison.

    Attributes:
        grade: the worst grade over all compared positions.
        compared: positions compared.
        ratio: the largest error / noise, which is the smallest bound that would have passed.
        max_abs: largest absolute difference of a logit.
        mean_abs: mean absolute difference, for information; no grade depends on it.
        max_ulp: largest difference in units of the last place of the row's largest logit.
        max_relative: largest difference relative to the row's largest logit.
        max_kl: largest KL divergence of a position's next-token distribution, in nats per token, from
            the second run's to the first's.
        flips: positions whose top token differs although the margin exceeds the noise.
        near_ties: positions whose top token differs within the noise.
        shift: the common offset of a row's logits where that explains the whole difference, else None.
        first_bad: the first position that is worse than rounding.
        worst: the position with the largest ratio.
        bad: how many positions are worse than rounding.
        problem: what is wrong with the run itself, for grade `error`.
    """

    grade: Grade
    compared: int = 0
    ratio: float = 0.0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    max_ulp: float = 0.0
    max_relative: float = 0.0
    max_kl: float = 0.0
    flips: int = 0
    near_ties: int = 0
    shift: float | None = None
    first_bad: Place | None = None
    worst: Place | None = None
    bad: int = 0
    problem: str = ""


def compare(
    got: np.ndarray | None,
    want: np.ndarray,
    noise: np.ndarray,
    cells: np.ndarray,
    dtype: str,
    *,
    finite: np.ndarray | None = None,
) -> Verdict:
    """Grade `got` against `want`.

    Args:
        got: logits [B, T, V] of the run under test, or None where it gave none.
        want: logits [B, T, V] of the run that it should equal.
        noise: [B, T], the noise of each position.
        cells: bool [B, T], the positions to compare.
        dtype: the dtype that the run computed in.
        finite: bool [B, T], positions that must be finite; None for those compared.
    """
    problem = unusable(got, want, cells, cells if finite is None else finite)
    if problem or got is None:
        return Verdict(Grade.ERROR, problem=problem or "no logits")
    places = np.argwhere(cells)
    left, right = got[cells].astype(np.float64), want[cells].astype(np.float64)  # [N, V]
    floor = noise[cells]  # [N]
    difference = np.abs(left - right)
    error = difference.max(axis=-1)
    ratios = error / floor
    bad = np.flatnonzero(ratios > ROUNDING)
    worst = int(ratios.argmax())
    magnitude = np.abs(right).max(axis=-1)
    differing, margin = _top_tokens(left, right)
    near = differing & (margin <= 2 * ROUNDING * floor)

    def place(index: int) -> Place:
        return Place(int(places[index, 0]), int(places[index, 1]))

    return Verdict(
        grade=_grade(float(error.max()), float(ratios.max())),
        compared=len(places),
        ratio=float(ratios.max()),
        max_abs=float(error.max()),
        mean_abs=float(difference.mean()),
        max_ulp=float((error / (2 * half_ulp(magnitude, dtype))).max()),
        max_relative=float((error / np.maximum(magnitude, np.finfo(np.float32).tiny)).max()),
        max_kl=float(_kl(left, right).max()),
        flips=int((differing & ~near).sum()),
        near_ties=int(near.sum()),
        shift=_shift(left, right, floor) if len(bad) else None,
        first_bad=place(int(bad[0])) if len(bad) else None,
        worst=place(worst),
        bad=len(bad),
    )


def _grade(error: float, ratio: float) -> Grade:
    if error == 0:
        return Grade.EXACT
    if ratio <= ROUNDING:
        return Grade.ROUNDING
    return Grade.DRIFT if ratio <= DRIFT else Grade.DIVERGENT


def unusable(got: np.ndarray | None, want: np.ndarray, cells: np.ndarray, finite: np.ndarray) -> str:
    """What keeps two runs from being compared, in the order of the checks; empty where nothing does.

    Args:
        got: as in `compare`.
        want: as in `compare`.
        cells: as in `compare`.
        finite: bool [B, T], positions of `got` that must be finite.
    """
    if got is None:
        return "no logits"
    shape = [*cells.shape, *want.shape[-1:]]
    both = (("logits", got, finite), ("other logits", want, cells))  # `want` may be a run too
    for name, logits, _ in both:
        if list(logits.shape) != shape:
            return f"{name}: shape = {list(logits.shape)}, but should be {shape}"
    for name, logits, _ in both:
        if logits.dtype not in (np.float32, np.float64):
            return f"{name}: dtype = {logits.dtype}, but should be float32 or float64"
    if not cells.any():
        return "no position was compared"
    for name, logits, needed in both:
        broken = needed & ~np.isfinite(logits).all(axis=-1)
        if broken.any():
            row, position = np.argwhere(broken)[0]
            values = logits[row, position]
            entry = int(np.flatnonzero(~np.isfinite(values))[0])
            return (
                f"{name}[{row}, {position}, {entry}] = {values[entry]}, but should be finite "
                f"({int(broken.sum())} of {int(needed.sum())} positions)"
            )
    return ""


def _top_tokens(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the top tokens differ, and how far `right` holds its top token above the other's."""
    mine, theirs = left.argmax(axis=-1), right.argmax(axis=-1)
    rows = np.arange(len(left))
    return mine != theirs, right[rows, theirs] - right[rows, mine]


def _kl(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """KL(right || left) of each row's softmax, in nats; [N]."""
    log_left, log_right = _log_softmax(left), _log_softmax(right)
    return np.asarray((np.exp(log_right) * (log_right - log_left)).sum(axis=-1))


def _log_softmax(values: np.ndarray) -> np.ndarray:
    shifted = values - values.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _shift(left: np.ndarray, right: np.ndarray, floor: np.ndarray) -> float | None:
    """The largest uniform offset, where offsets alone explain every row's difference."""
    difference = left - right
    offset = np.median(difference, axis=-1, keepdims=True)
    if (np.abs(difference - offset).max(axis=-1) > ROUNDING * floor).any():
        return None
    return float(offset[np.abs(offset).argmax()].item())
