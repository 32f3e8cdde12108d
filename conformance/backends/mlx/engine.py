"""mlx-lm inside this process: models loaded as `mlx_lm.generate` loads them, fed over their own caches.

Imported only in the worker. One row goes over the caches that the model makes, as in generation; several
go over what mlx-lm's batch generator merges such caches to.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache
from mlx_lm.utils import load_model

from conformance.backends.mlx.steps import Chunk, chunks, left_padding
from conformance.errors import Refused, Unsupported
from conformance.feeds import Crop, Feed, Forward, Reorder

__all__ = ["load", "run", "set_numerics", "train"]

_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


def set_numerics() -> None:
    """Compute on the CPU, and compile nothing: that would need a C++ compiler where the worker runs."""
    mx.set_default_device(mx.cpu)
    mx.disable_compile()


def load(directory: Path, dtype: str) -> Any:
    """A checkpoint directory's model, in evaluation mode.

    Raises:
        ValueError: mlx-lm has no such model, or its parameters and the stored tensors do not match.
    """
    network, _ = load_model(directory, lazy=False, strict=True)
    network.set_dtype(_DTYPES[dtype])
    mx.eval(network.parameters())
    return network


def run(network: Any, feed: Feed) -> np.ndarray:
    """float32 logits [B, T, V] of an evaluation feed; 0 in cells that are not fed.

    Raises:
        Refused: the cache cannot be trimmed.
        Unsupported: rows of unequal length with operations on the cache.
    """
    if feed.lengths is not None and feed.padding != "left" and any(isinstance(s, Crop) for s in feed.steps):
        raise Unsupported("does not trim rows of unequal length")
    batch = _Batch(network, feed)
    pending = iter(chunks(feed))
    made: list[tuple[Chunk, np.ndarray]] = []
    column = 0
    for step in feed.steps:
        match step:
            case Forward(columns):
                column += columns
                if any(cells.stop > column - columns for cells in feed.real):
                    chunk = next(pending)
                    made.append((chunk, batch.forward(chunk)))
            case Crop(length):
                batch.crop(length)
            case Reorder(rows):
                batch.reorder(rows)
    logits = np.zeros((feed.batch, feed.width, made[0][1].shape[-1]), np.float32)
    for chunk, answer in made:
        for place, row in enumerate(chunk.rows):
            kept = chunk.lengths[row]
            logits[row, chunk.start : chunk.start + kept] = answer[place, :kept]
    return logits


def train(network: Any, feed: Feed) -> np.ndarray:
    """float32 logits [B, T, V] of a training feed: no cache, and gradients where it asks for them.

    Raises:
        Unsupported: several steps, or rows of unequal length.
    """
    if len(feed.steps) > 1 or feed.lengths is not None:
        raise Unsupported("trains whole rows of equal length: training has no cache and no mask")
    tokens = mx.array([list(row) for row in feed.tokens])

    def loss(tokens: Any) -> tuple[Any, Any]:
        logits = network(tokens)
        return logits.astype(mx.float32).square().mean(), logits

    network.train()
    try:
        if feed.mode == "training":
            (_, logits), gradients = nn.value_and_grad(network, loss)(tokens)
            mx.eval(logits, gradients)
        else:
            logits = network(tokens)
        return _to_numpy(logits)
    finally:
        network.eval()


class _Batch:
    """Caches of one feed, and the rows of the feed that they hold."""

    def __init__(self, network: Any, feed: Feed) -> None:
        self._network = network
        self._feed = feed
        self._held = 0
        self._rows = tuple(range(feed.batch))
        alone = [make_prompt_cache(network) for _ in self._rows]
        # Without a history there is nothing to merge but the batch's form of each kind of cache.
        self._cache = (
            alone[0] if feed.batch == 1 else [kind[0].merge(list(kind)) for kind in zip(*alone, strict=True)]
        )
        padding = left_padding(feed)
        if any(padding):
            if feed.batch == 1:
                raise Unsupported("pads rows of a batch only")
            for cache in self._cache:
                cache.prepare(left_padding=list(padding))

    def forward(self, chunk: Chunk) -> np.ndarray:
        """float32 logits [rows of the chunk, columns, V]."""
        if chunk.rows != self._rows:
            self._filter([self._rows.index(row) for row in chunk.rows])
            self._rows = chunk.rows
        padded = any(chunk.padding)
        if padded:
            for cache in self._cache:
                cache.prepare(
                    lengths=[chunk.lengths[row] for row in chunk.rows], right_padding=list(chunk.padding)
                )
        columns = slice(chunk.start, chunk.start + chunk.columns)
        tokens = mx.array([list(self._feed.tokens[row][columns]) for row in chunk.rows])
        logits = _to_numpy(self._network(tokens, cache=self._cache))
        if padded:
            for cache in self._cache:
                cache.finalize()
        self._held += chunk.columns
        return logits

    def crop(self, length: int) -> None:
        """Trim what lies beyond a length."""
        excess = self._held - length
        if excess <= 0:
            return
        if trim_prompt_cache(self._cache, excess) != excess:
            raise Refused("mlx-lm does not trim a cache whose window is full")
        self._held = length

    def reorder(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        if self._rows != tuple(range(self._feed.batch)):
            raise Unsupported("does not move rows once one of them has ended")
        self._filter(rows)

    def _filter(self, places: Sequence[int]) -> None:
        if self._feed.batch == 1:
            return  # one row can only become itself, and its caches are no batch
        for cache in self._cache:
            cache.filter(mx.array(list(places)))


def _to_numpy(logits: Any) -> np.ndarray:
    return np.array(logits.astype(mx.float32))
