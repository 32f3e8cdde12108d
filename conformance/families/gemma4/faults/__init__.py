"""Faults of Gemma 4: their bank, and the deviating model that takes them. Importing it imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from conformance.families.base import Spec
from conformance.families.gemma4.faults.bank import FAULTS
from conformance.families.gemma4.faults.knobs import knobs_with
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.feeds import Feed

__all__ = ["FAULTS", "arrange", "run"]


def arrange(spec: Spec, weights: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights as an implementation with these changes takes them (`layout.arrange`)."""
    from conformance.families.gemma4.faults.layout import arrange

    return arrange(cast(Gemma4Spec, spec), weights, knobs_with(changes))


def run(spec: Spec, weights: Mapping[str, Any], feed: Feed, changes: Mapping[str, Any]) -> Any:
    """Logits [B, T, V] of the deviating model on arranged weights (`model.run`)."""
    from conformance.families.gemma4.faults.model import run

    return run(cast(Gemma4Spec, spec), weights, feed, knobs_with(changes))
