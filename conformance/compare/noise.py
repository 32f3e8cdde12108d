"""Noise: how far apart two correct evaluations of this very trial may be, position by position.

A pure function of logits that the reference computed; nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Truth", "measure"]

_MANTISSA_BITS = {"float32": 23, "bfloat16": 7, "float64": 52}


@dataclass(frozen=True)
class Truth:
    """What the reference says of one feed.

    Attributes:
        logits: float64 [B, T, V], the reference in float64.
        in_dtype: [B, T, V], the reference in the feed's dtype, in its own evaluation order.
        noise: float64 [B, T], the largest distance from `logits` over correct evaluations.
        dtype: the feed's dtype.
    """

    logits: np.ndarray
    in_dtype: np.ndarray
    noise: np.ndarray
    dtype: str


def measure(exact: np.ndarray, evaluations: Sequence[np.ndarray], dtype: str) -> Truth:
    """Noise of every position from several correct evaluations in `dtype`.

    Args:
        exact: float64 logits [B, T, V].
        evaluations: the same logits computed in `dtype`, in several orders; the first is the
            reference's own.
        dtype: a name of `conformance.feeds.DTYPES`.

    Returns:
        The truth with its noise: the maximum over evaluations and vocabulary of the distance from
        `exact`, and never less than half a unit in the last place of the row's largest logit, for no
        implementation can return a logit more precisely than its dtype holds it.
    """
    with np.errstate(invalid="ignore"):  # what is predicted with faults need not be finite
        spread = np.max([np.abs(run.astype(np.float64) - exact).max(axis=-1) for run in evaluations], axis=0)
    return Truth(
        exact, evaluations[0], np.maximum(spread, half_ulp(np.abs(exact).max(axis=-1), dtype)), dtype
    )


def half_ulp(magnitude: np.ndarray, dtype: str) -> np.ndarray:
    """Half the distance between neighbouring `dtype` numbers of this magnitude; float64, same shape.

    Never 0: numbers below the smallest normal float32 are taken as that one.
    """
    # frexp: magnitude = fraction * 2**exponent with a fraction of at least 1/2; exact, unlike log2.
    _, exponent = np.frexp(np.maximum(magnitude, np.finfo(np.float32).tiny))
    return np.asarray(np.ldexp(1.0, exponent - 1 - _MANTISSA_BITS[dtype] - 1))
