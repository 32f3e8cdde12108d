"""The reference with faults: running any feed through the deviating model of a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conformance.errors import Unsupported
from conformance.families.base import Spec
from conformance.faults import BATCH, UNLIKE_ROWS, Fault, combine, faults_of, find
from conformance.feeds import Feed, Forward, Reorder, Step

__all__ = ["PREFIX", "named", "read_order", "run"]

PREFIX = "faults:"


def read_order(order: str) -> tuple[tuple[str, ...], int]:
    """The faults and the relabelling of an order ``faults:ID,ID`` or ``faults:ID,ID;relabel:N``.

    Raises:
        Unsupported: it is not such an order.
    """
    names, _, inner = order.removeprefix(PREFIX).partition(";")
    kind, _, number = (inner or "relabel:0").partition(":")
    if kind != "relabel" or not number.isdecimal():
        raise Unsupported(f"has no evaluation order called {inner}")
    return tuple(sorted(names.split(","))) if names else (), int(number)


def named(family: str, ids: Sequence[str]) -> tuple[Fault, ...]:
    """Some faults of a family, which one model can have together.

    Raises:
        BadInput: there is no fault of that name, or two of them exclude each other.
    """
    bank = faults_of(family).FAULTS
    found = tuple(find(bank, name) for name in ids)
    combine(found)
    return found


def run(spec: Spec, weights: Mapping[str, Tensor], feed: Feed, faults: Sequence[Fault]) -> Tensor:
    """Logits [B, T, V] of one feed; rows of unequal length without padding run one by one.

    Where a fault makes rows depend on each other, they run together, and what is beyond a row is hidden.

    Raises:
        Unsupported: such rows are to be moved.
    """
    model, changes = faults_of(spec.family), combine(faults)
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
