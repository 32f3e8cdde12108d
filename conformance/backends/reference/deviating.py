"""The reference with faults: running any feed through the deviating model of a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conformance.errors import Unsupported
from conformance.families.base import Spec
from conformance.faults import BATCH, LEANINGS, UNLIKE_ROWS, Fault, combine, faults_of, find
from conformance.feeds import Feed, Forward, Reorder, Step

__all__ = ["PREFIX", "Order", "named", "read_order", "run"]

PREFIX = "faults:"


@dataclass(frozen=True)
class Order:
    """How a model with faults is evaluated.

    Attributes:
        faults: their ids, sorted.
        relabelling: which permutation of channels; 0 for none.
        lean: to which side numbers on the border of a rounding fall: ``none``, ``up`` or ``down``.
    """

    faults: tuple[str, ...]
    relabelling: int = 0
    lean: str = "none"


def read_order(order: str) -> Order:
    """Read ``faults:ID,ID``, ``faults:ID,ID;relabel:N`` or ``faults:ID,ID;lean:up``.

    Raises:
        Unsupported: it is not such an order.
    """
    names, _, inner = order.removeprefix(PREFIX).partition(";")
    faults = tuple(sorted(names.split(","))) if names else ()
    kind, _, argument = (inner or "relabel:0").partition(":")
    if inner in LEANINGS:
        return Order(faults, lean=argument)
    if kind != "relabel" or not argument.isdecimal():
        raise Unsupported(f"has no evaluation order called {inner}")
    return Order(faults, relabelling=int(argument))


def named(family: str, ids: Sequence[str]) -> tuple[Fault, ...]:
    """Some faults of a family, which one model can have together.

    Raises:
        BadInput: there is no fault of that name, or two of them exclude each other.
    """
    bank = faults_of(family).FAULTS
    found = tuple(find(bank, name) for name in ids)
    combine(found)
    return found


def run(
    spec: Spec, weights: Mapping[str, Tensor], feed: Feed, faults: Sequence[Fault], lean: str = "none"
) -> Tensor:
    """Logits [B, T, V] of one feed; rows of unequal length without padding run one by one.

    Where a fault makes rows depend on each other, they run together, and what is beyond a row is hidden.

    Raises:
        Unsupported: such rows are to be moved.
    """
    model, changes = faults_of(spec.family), {**combine(faults), "lean": lean}
    if "ragged" not in feed.requires or any(c in (BATCH, UNLIKE_ROWS) for f in faults for c in f.where):
        logits: Tensor = model.run(spec, weights, feed, changes)
        return logits
    rows = [model.run(spec, weights, _alone(feed, row), changes)[0] for row in range(feed.batch)]
    laid = torch.zeros(feed.batch, feed.width, rows[0].shape[-1], dtype=rows[0].dtype)
    for row, answer in enumerate(rows):
        laid[row, : len(answer)] = answer
    return laid


def _alone(feed: Feed, row: int) -> Feed:
    """One row of a ragged feed, in the steps that it has a part in."""
    left = len(feed.real[row])
    steps: list[Step] = []
    for step in feed.steps:
        if isinstance(step, Reorder):
            raise Unsupported("moves rows of unequal length that have no padding")
        if not isinstance(step, Forward):
            steps.append(step)
        elif left:
            steps.append(Forward(min(step.columns, left)))
            left -= steps[-1].columns  # type: ignore[union-attr]
    return replace(feed.row(row), steps=tuple(steps))
