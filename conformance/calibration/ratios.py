"""Ratios of error to noise, position by position, and the noises to judge them by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.compare.noise import measure

__all__ = ["leave_one_out", "noise_of", "of_neighbours", "ratios_of"]


def ratios_of(got: np.ndarray, want: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """[B, T]: largest difference of a position's logits over its noise, as `compare` grades it.

    Args:
        got: logits [B, T, V].
        want: logits [B, T, V].
        noise: [B, T].
    """
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return np.asarray(difference.max(axis=-1) / noise)


def noise_of(exact: np.ndarray, evaluations: Sequence[np.ndarray], dtype: str) -> np.ndarray:
    """[B, T]: the noise that these evaluations make, as `compare.noise` measures it."""
    return measure(exact, evaluations, dtype).noise


def leave_one_out(exact: np.ndarray, evaluations: Sequence[np.ndarray], dtype: str) -> list[np.ndarray]:
    """For each evaluation [B, T]: its ratios by the noise of the others, so that none judges itself.

    Raises:
        ValueError: there is only one evaluation.
    """
    if len(evaluations) < 2:
        raise ValueError(f"{len(evaluations)} evaluation, but there should be others to judge it by")
    ratios = []
    for index, run in enumerate(evaluations):
        others = [other for place, other in enumerate(evaluations) if place != index]
        ratios.append(ratios_of(run, exact, noise_of(exact, others, dtype)))
    return ratios


def of_neighbours(noise: np.ndarray, reach: int) -> np.ndarray:
    """[B, T]: the largest noise within `reach` places of each position of a row."""
    padded = np.pad(noise, [(0, 0), (reach, reach)])  # noise is never negative
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=1).max(axis=-1))
