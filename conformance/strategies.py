"""Strategies of feeds: tokens and the ways to cut them into chunks. Nothing here knows a family."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from conformance.checkpoints.random import raw_words
from conformance.families.base import Spec
from conformance.feeds import Feed, Forward

__all__ = ["feeds", "long_feeds", "splits"]


@st.composite
def feeds(draw: st.DrawFn, spec: Spec, *, min_width: int, max_width: int, batch: int = 1) -> Feed:
    """Whole float32 feeds of `batch` rows; tokens over the whole vocabulary.

    Args:
        draw: given by hypothesis.
        spec: whose vocabulary to draw from.
        min_width: fewest tokens of a row.
        max_width: most tokens of a row.
        batch: rows.
    """
    width = draw(st.integers(min_width, max_width), label="width")
    row = st.lists(st.integers(0, spec.vocab_size - 1), min_size=width, max_size=width).map(tuple)
    tokens = tuple(draw(row, label=f"tokens of row {index}") for index in range(batch))
    return Feed(tokens=tokens, steps=(Forward(width),))


@st.composite
def long_feeds(draw: st.DrawFn, spec: Spec, *, min_width: int, max_width: int) -> Feed:
    """Whole float32 feeds of one long row, its tokens drawn at once: hypothesis is slow on long lists."""
    width = draw(st.integers(min_width, max_width), label="width")
    name = draw(st.integers(0, 2**16 - 1), label="tokens")
    tokens = tuple(int(word % spec.vocab_size) for word in raw_words(f"tokens {name}", width).tolist())
    return Feed(tokens=(tokens,), steps=(Forward(width),))


@st.composite
def splits(draw: st.DrawFn, width: int, *, most: int = 6) -> tuple[int, ...]:
    """Chunk sizes that sum to `width`: at least two chunks, at most `most`."""
    cuts = draw(st.sets(st.integers(1, width - 1), min_size=1, max_size=most - 1), label="cuts")
    edges = [0, *sorted(cuts), width]
    return tuple(after - before for before, after in pairwise(edges))
