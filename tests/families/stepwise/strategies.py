"""Feeds of every kind that a feed can be: chunks, cache operations, padding, segments, positions, modes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from conformance.families.base import Spec
from conformance.feeds import MODES, Crop, Feed, Forward, Reorder, Reset, Step


@st.composite
def any_feeds(draw: st.DrawFn, spec: Spec, *, most: int = 26, rows: int = 3) -> Feed:
    """A float64 feed of up to `most` columns; the parts of its description are drawn independently."""
    width = draw(st.integers(2, most), label="width")
    batch = draw(st.integers(1, rows), label="batch")

    def grid(entries: st.SearchStrategy[int]) -> tuple[tuple[int, ...], ...]:
        row = st.lists(entries, min_size=width, max_size=width).map(tuple)
        return tuple(draw(row) for _ in range(batch))

    cuts = draw(st.sets(st.integers(1, width - 1), max_size=8), label="cuts")
    edges = [0, *sorted(cuts), width]
    steps: list[Step] = []
    operations = st.one_of(
        st.none(),
        st.builds(Crop, st.integers(0, width)),
        st.just(Reset()),
        st.builds(Reorder, st.tuples(*[st.integers(0, batch - 1)] * batch)),
    )
    for start, stop in pairwise(edges):
        operation = draw(operations) if start else None
        steps += [Forward(stop - start)] if operation is None else [operation, Forward(stop - start)]
    padding = draw(st.sampled_from([None, "left", "right"]), label="padding")
    lengths = st.tuples(*[st.integers(1, width)] * batch)
    return Feed(
        tokens=grid(st.integers(0, spec.vocab_size - 1)),
        steps=tuple(steps),
        mode=draw(st.sampled_from(MODES), label="mode"),
        dtype="float64",
        lengths=draw(lengths, label="lengths") if padding else None,
        padding=padding,
        positions=grid(st.integers(0, 300)) if draw(st.booleans(), label="positions") else None,
        segments=grid(st.integers(0, 2)) if draw(st.booleans(), label="segments") else None,
    )
