"""Cache operations worth trying on a cache that holds some tokens."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.feeds import Crop, Reorder, Reset, Step

__all__ = ["cache_operations"]


def cache_operations(
    held: int, permuted: tuple[int, ...] = (2, 0, 1), forked: tuple[int, ...] = (1, 1, 0)
) -> Mapping[str, Step]:
    """One step of each kind, by name, for a cache of `held` tokens in each row.

    Args:
        held: tokens in the cache when the step comes.
        permuted: rows for a permutation.
        forked: rows for a fork, one of them twice.
    """
    return {
        "crop": Crop(held - 2),
        "deep crop": Crop(2),
        "crop to 0": Crop(0),
        "crop past the end": Crop(held + 3),
        "reset": Reset(),
        "reorder": Reorder(permuted),
        "fork": Reorder(forked),
    }
