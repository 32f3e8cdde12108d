"""How a deviating model executes a feed: its forward steps over a cache, and the operations between them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conformance.families.base import Spec
from conformance.families.stepwise.cache import Memory
from conformance.families.stepwise.knobs import StepKnobs
from conformance.families.stepwise.view import Chunk
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset

__all__ = ["execute"]


def execute(spec: Spec, feed: Feed, knobs: StepKnobs, forward: Callable[[Memory, Chunk], Tensor]) -> Tensor:
    """Logits [B, T, V] of a whole feed.

    Args:
        spec: the configuration.
        feed: any feed.
        knobs: what to do wrong.
        forward: logits [B, T, V] of one forward step; it adds the step's tokens to the memory.
    """
    memory = Memory(spec, knobs, feed.batch)
    chunks = iter(_chunks(feed, knobs))
    logits: list[Tensor] = []
    for step in feed.steps:
        match step:
            case Forward():
                logits.append(forward(memory, next(chunks)))
            case Crop(length):
                memory.crop(length)
            case Reset():
                memory.reset()
            case Reorder(rows):
                memory.reorder(rows)
    return torch.cat(logits, dim=1)


def _chunks(feed: Feed, knobs: StepKnobs) -> list[Chunk]:
    """The columns of each forward step."""
    tokens = torch.tensor(feed.tokens)
    real = torch.zeros_like(tokens, dtype=torch.bool)
    shown = torch.zeros_like(real)
    for row, cells in enumerate(feed.real):
        hidden = knobs.padding_error if len(cells) < feed.width and feed.padding == "left" else 0
        real[row, cells.start : cells.stop] = True
        shown[row, cells.start + hidden : cells.stop] = True
    segments = torch.zeros_like(tokens) if feed.segments is None else torch.tensor(feed.segments)
    segments = torch.where(shown, segments, -1)
    positions = None if feed.positions is None else torch.tensor(feed.positions)
    chunks: list[Chunk] = []
    start = 0
    for columns in feed.chunks:
        cut = slice(start, start + columns)
        given = None if positions is None else positions[:, cut]
        training = feed.mode != "evaluation"
        chunks.append(Chunk(tokens[:, cut], real[:, cut], segments[:, cut], given, training, feed.width))
        start += columns
    return chunks
