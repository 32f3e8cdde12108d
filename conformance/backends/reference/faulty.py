"""The reference with faults, behind the worker protocol: what a harness must notice, and triage must name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.errors import Unsupported
from conformance.faults import combine, faults_of, find
from conformance.feeds import CAPABILITIES, Feed

__all__ = ["FaultyAdapter"]


class FaultyAdapter(ReferenceAdapter):
    """Runs feeds step by step over a cache, through the deviating model of the checkpoint's family.

    Options:
        faults: ids of the family's bank; none of them makes a second, conforming implementation.
        releases: the releases to claim; all by default.
        threads: of PyTorch; 1 by default.

    Evaluation orders: ``relabel:N``, on the weights as the faulty implementation takes them.
    """

    capabilities = frozenset(CAPABILITIES) - {"ragged"}
    orders: ClassVar[tuple[str, ...]] = ("relabel:N",)  # type: ignore[assignment]

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._ids: tuple[str, ...] = tuple(options.get("faults", ()))

    def prepare(self, checkpoint: Path) -> Any:
        """Load a checkpoint, its weights arranged as the faulty implementation takes them.

        Raises:
            BadInput: the family has no fault of that name, or two of them exclude each other.
        """
        model = super().prepare(checkpoint)
        faults = faults_of(model.spec.family)
        model.stored = dict(faults.arrange(model.spec, model.stored, self._changes(model.spec.family)))
        return model

    def run_in_order(self, model: Any, feed: Feed, order: str) -> np.ndarray:
        """Run one feed; what a faulty run returns may have another shape, or not be finite."""
        name, _, number = order.partition(":")
        if name != "relabel" or not number.isdecimal():
            raise Unsupported(f"has no evaluation order called {order}")
        weights = self._weights(model, feed.dtype, int(number))
        family = model.spec.family
        logits: torch.Tensor = faults_of(family).run(model.spec, weights, feed, self._changes(family))
        return np.asarray(logits.numpy())

    def numerics(self) -> dict[str, Any]:
        """As the reference, and which faults it has."""
        return {**super().numerics(), "faults": list(self._ids)}

    def _changes(self, family: str) -> dict[str, Any]:
        bank = faults_of(family).FAULTS
        return combine(find(bank, name) for name in self._ids)
