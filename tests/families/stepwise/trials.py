"""Weights and feeds on which faults are looked for, with what the oracle says of each and its noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.checkpoints.store import write_checkpoint
from conformance.compare.noise import Truth, measure
from conformance.families import family_of
from conformance.families.base import Spec
from conformance.faults import faults_of
from conformance.feeds import Feed, Forward, Reorder
from conformance.operations import cache_operations

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
SEED = 7


def tokens_of(spec: Spec, rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """Tokens of all sorts, faint and loud ones among them; no two rows alike."""
    draws = np.random.default_rng(rows * 1000 + columns).integers(0, spec.vocab_size, (rows, columns))
    return tuple(tuple(int(token) for token in row) for row in draws)


def feeds_of(spec: Spec) -> Iterator[tuple[str, Feed]]:
    """Feeds of every kind, by name, those that show most first."""
    span = spec.window_span
    width = 3 * span + 4
    one = Feed(tokens=tokens_of(spec, 1, width), steps=(Forward(width),))
    two = Feed(tokens=tokens_of(spec, 2, width), steps=(Forward(width),))
    left = replace(two, lengths=(width - 3, width), padding="left")
    packed = replace(
        two, segments=((0,) * 6 + (1,) * (width - 6), (0,) * (span + 2) + (1,) * (width - span - 2))
    )
    gaps = tuple(tuple(3 * column + (column > 5) * 9 + row for column in range(width)) for row in (0, 1))
    yield "whole", one
    yield "decode", one.token_by_token(2)
    yield "decode beyond the window", one.token_by_token(span + 2)
    yield "chunks", one.split([span + 1, span, 2])
    yield "one long chunk", one.split([3, 2 * span])
    for more in range(3):
        yield f"training at span + {more}", replace(one.first(span + more), mode="training")
    yield "training", replace(one, mode="training")
    yield "left padding", left
    yield "left padding, decode", left.token_by_token(2 * span)
    yield "left padding, training", replace(left, mode="training")
    yield "right padding", replace(two, lengths=(width - 3, width), padding="right")
    yield "segments", packed
    yield "segments, chunks", packed.split([5, 4, 3])
    yield "segments, training", replace(packed, mode="training")
    yield "positions", replace(two, positions=gaps)
    yield "positions beyond 256", replace(one, positions=(tuple(301 + 7 * n for n in range(width)),))
    held = span + 3
    rest = width - held - 2
    for name, step in cache_operations(held, permuted=(1, 0), forked=(0, 0)).items():
        yield name, replace(two, steps=(Forward(held), step, Forward(2), *[Forward(1)] * rest))
    yield "reorder, padded", replace(left, steps=(Forward(held), Reorder((1, 0)), Forward(width - held)))
    long = Feed(tokens=tokens_of(spec, 1, 66), steps=(Forward(66),))
    yield "long", long
    yield "half as long", long.first(33)
    for name, feed in (("whole", one), ("long", long), ("decode", one.token_by_token(2))):
        yield f"{name}, bfloat16", replace(feed, dtype="bfloat16")


@dataclass(frozen=True)
class Ground:
    """One model and one feed, and what the oracle says of it.

    Attributes:
        spec: the model.
        feed: the feed.
        truth: the oracle in float64, and the noise of the feed's dtype.
        cells: bool [B, T], the real positions.
    """

    spec: Spec
    feed: Feed
    truth: Truth
    cells: np.ndarray

    def run(self, changes: Mapping[str, Any], dtype: str = "float64") -> np.ndarray:
        """The deviating model in `dtype`; float64 logits."""
        faults = faults_of(self.spec.family)
        weights = faults.arrange(self.spec, weights_of(self.spec, dtype), changes)
        return np.asarray(faults.run(self.spec, weights, self.feed, changes).double().numpy())

    def error(self, logits: np.ndarray) -> np.ndarray:
        """The largest distance of each real position from the oracle."""
        return np.asarray(np.abs(logits - self.truth.logits).max(axis=-1)[self.cells])

    def ratio(self, logits: np.ndarray) -> float:
        """The largest distance from the oracle in units of noise."""
        return float((self.error(logits) / self.truth.noise[self.cells]).max())


@cache
def weights_of(spec: Spec, dtype: str) -> dict[str, Tensor]:
    """The weights of a model."""
    weights = family_of(spec.family).weights(spec, SEED, "telling")
    return {name: torch.from_numpy(w).to(DTYPES[dtype]) for name, w in weights.items()}


class Oracle:
    """The reference, asked in this process; answers are kept.

    Args:
        directory: for checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        self._adapter = ReferenceAdapter({})
        self._directory = directory
        self._models: dict[Spec, Any] = {}
        self._grounds: dict[tuple[Spec, str], Ground] = {}

    def ground(self, spec: Spec, feed: Feed) -> Ground:
        """What it says of one feed, and the noise."""
        key = (spec, feed.key)
        if key not in self._grounds:
            exact = self.run(spec, replace(feed, dtype="float64"))
            orders = ("relabel:0", *family_of(spec.family).orders[feed.dtype])
            wide = feed.dtype == "float64"
            evaluations = [exact] if wide else [self.run(spec, feed, order) for order in orders]
            self._grounds[key] = Ground(spec, feed, measure(exact, evaluations, feed.dtype), real_cells(feed))
        return self._grounds[key]

    def with_weights(self, spec: Spec, weights: Mapping[str, Tensor], feed: Feed) -> np.ndarray:
        """Its logits with weights that no checkpoint holds."""
        if not self._models:
            self.run(spec, Feed(tokens=((1,),), steps=(Forward(1),)))
        (model, *_) = self._models.values()
        return self._adapter.run(replace(model, spec=spec, stored=dict(weights), ready={}), feed)

    def run(self, spec: Spec, feed: Feed, order: str = "relabel:0") -> np.ndarray:
        """Its logits in the feed's dtype."""
        if spec not in self._models:
            self._models[spec] = self._adapter.prepare(write_checkpoint(self._directory, spec, SEED).path)
        return self._adapter.run_in_order(self._models[spec], feed, order)


def real_cells(feed: Feed) -> np.ndarray:
    """bool [B, T]: the positions that hold real tokens."""
    cells = np.zeros((feed.batch, feed.width), dtype=bool)
    for row, columns in enumerate(feed.real):
        cells[row, columns.start : columns.stop] = True
    return cells
