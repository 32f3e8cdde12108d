"""Readings: a backend's answer to a probe, compared position by position. Pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from conformance.claims import real_cells
from conformance.compare.noise import Truth
from conformance.compare.verdict import ROUNDING, Place
from conformance.runs import Run
from conformance.triage.probes import Probe

__all__ = ["Reading", "explained", "ratios", "share_of"]


@dataclass(frozen=True)
class Reading:
    """What a backend did on one probe.

    Attributes:
        probe: what it was fed.
        run: what it answered.
        truth: what the reference says, and the noise.
    """

    probe: Probe
    run: Run
    truth: Truth
    cells: np.ndarray = field(init=False)
    plain: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", real_cells(self.probe.feed))
        object.__setattr__(self, "plain", self.off(self.truth.logits, self.truth.noise))

    @property
    def answered(self) -> bool:
        """Are there logits?"""
        return self.run.logits is not None

    @property
    def conforms(self) -> bool:
        """Does the reference explain it?"""
        return bool(explained(self.plain))

    def off(self, want: np.ndarray | None, noise: np.ndarray) -> np.ndarray:
        """Error / noise [N] of the answer from other logits, over the N real positions."""
        return ratios(self.run.logits, want, noise, self.cells)

    @property
    def first_bad(self) -> Place | None:
        """The first position, by column, that is worse than rounding."""
        places = np.argwhere(self.cells)[self.plain > ROUNDING]
        if not len(places):
            return None
        row, position = min(places.tolist(), key=lambda place: (place[1], place[0]))
        return Place(row, position)


def explained(off: np.ndarray) -> bool:
    """Is nothing left but rounding?"""
    return bool(off.max() <= ROUNDING)


def ratios(
    got: np.ndarray | None, want: np.ndarray | None, noise: np.ndarray, cells: np.ndarray
) -> np.ndarray:
    """Error / noise [N] over the cells that are compared.

    Infinite where one of the two has no logits, another shape, or is finite where the other is not; 0 where
    neither is finite, for then the one does predict the other.
    """
    count = int(cells.sum())
    if got is None or want is None or got.shape != want.shape:
        return np.zeros(count) if got is want else np.full(count, np.inf)
    left, right = got[cells].astype(np.float64), want[cells].astype(np.float64)
    finite = np.isfinite(left).all(axis=-1), np.isfinite(right).all(axis=-1)
    with np.errstate(invalid="ignore"):
        off = np.abs(left - right).max(axis=-1) / noise[cells]
    off = np.where(finite[0] & finite[1], off, np.inf)
    return np.where(~finite[0] & ~finite[1], 0.0, off)


def share_of(before: np.ndarray, after: np.ndarray) -> float:
    """Which share of some error is left, root mean square of the positions that are finite in both.

    Without any such position, or without an error before, all is left.
    """
    both = np.isfinite(before) & np.isfinite(after)
    size = float(np.square(before[both]).sum())
    return float(np.sqrt(np.square(after[both]).sum() / size)) if size else 1.0
