"""The reference with faults, behind the worker protocol: what a harness must notice, and triage must name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.deviating import PREFIX, named
from conformance.faults import LEANINGS
from conformance.feeds import Feed

__all__ = ["FaultyAdapter"]


class FaultyAdapter(ReferenceAdapter):
    """Runs feeds step by step over a cache, through the deviating model of the checkpoint's family.

    Options:
        faults: ids of the family's bank; none of them makes a second, conforming implementation.
        releases: the releases to claim; all by default.
        threads: of PyTorch; 1 by default.

    Evaluation orders: ``relabel:N``, on the weights as the faulty implementation takes them; ``lean:up``
    and ``lean:down``, for what it rounds.
    """

    orders: ClassVar[tuple[str, ...]] = ("relabel:N", *LEANINGS)  # type: ignore[assignment]

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._ids: tuple[str, ...] = tuple(options.get("faults", ()))

    def prepare(self, checkpoint: Path) -> Any:
        """Load a checkpoint.

        Raises:
            BadInput: the family has no fault of that name, or two of them exclude each other.
        """
        model = super().prepare(checkpoint)
        named(model.spec.family, self._ids)
        return model

    def run_in_order(self, model: Any, feed: Feed, order: str) -> np.ndarray:
        """Run one feed; what a faulty run returns may have another shape, or not be finite."""
        return super().run_in_order(model, feed, f"{PREFIX}{','.join(self._ids)};{order}")

    def numerics(self) -> dict[str, Any]:
        """As the reference, and which faults it has."""
        return {**super().numerics(), "faults": list(self._ids)}
