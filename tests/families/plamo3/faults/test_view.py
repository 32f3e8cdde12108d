"""Which tokens a local layer sees under faults of mask and cache, found by changing one token at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.families.plamo3 import faults
from conformance.faults import combine, find
from conformance.feeds import Crop, Feed, Forward, Reset, Step
from tests.families.plamo3.faults.trials import spec_of
from tests.families.stepwise.trials import tokens_of, weights_of

LOCAL_LAYER = spec_of("2604", num_hidden_layers=1)  # W 4
GLOBAL_LAYER = spec_of("2604", num_hidden_layers=1, sliding_window_pattern=1)
WHOLE = (Forward(12),)
CHUNKS = (Forward(8), Forward(4))
LONG_CHUNK = (Forward(5), Forward(7))
DECODE = (Forward(8), *[Forward(1)] * 4)
EVERYTHING = set(range(12))


def seen(id: str, steps: tuple[Step, ...], row: int, model: object = LOCAL_LAYER) -> set[int]:
    """The columns that the logits at column `row` depend on."""
    spec = GLOBAL_LAYER if model is GLOBAL_LAYER else LOCAL_LAYER
    changes = combine([find(faults.FAULTS, id)] if id else [])
    weights = weights_of(spec, "float64")
    feed = Feed(tokens=tokens_of(spec, 1, 12), steps=steps, dtype="float64")
    base = faults.run(spec, weights, feed, changes)[0, row]
    found = set()
    for column, token in enumerate(feed.tokens[0]):
        changed = (*feed.tokens[0][:column], (token + 1) % spec.vocab_size, *feed.tokens[0][column + 1 :])
        if (faults.run(spec, weights, replace(feed, tokens=(changed,)), changes)[0, row] != base).any():
            found.add(column)
    return found


SEEN: list[tuple[str, tuple[Step, ...], int, set[int]]] = [
    ("", WHOLE, 11, {8, 9, 10, 11}),
    ("", DECODE, 11, {8, 9, 10, 11}),
    ("", (Forward(9), Crop(7), Forward(3)), 9, {4, 5, 6, 9}),
    ("window-one-long", WHOLE, 11, {7, 8, 9, 10, 11}),
    ("window-one-short", DECODE, 11, {9, 10, 11}),
    ("window-missing", CHUNKS, 11, EVERYTHING),
    ("window-one-long-in-prefill", CHUNKS, 11, {7, 8, 9, 10, 11}),
    ("window-one-long-in-prefill", DECODE, 7, {3, 4, 5, 6, 7}),
    ("window-one-long-in-prefill", DECODE, 11, {8, 9, 10, 11}),
    ("window-one-long-in-chunks", CHUNKS, 7, {4, 5, 6, 7}),
    ("window-one-long-in-chunks", CHUNKS, 8, {4, 5, 6, 7, 8}),
    ("window-missing-in-decode", DECODE, 7, {4, 5, 6, 7}),
    ("window-missing-in-decode", DECODE, 8, set(range(9))),
    ("window-missing-from-8-tokens", CHUNKS, 7, set(range(8))),
    ("window-missing-from-8-tokens", CHUNKS, 11, {8, 9, 10, 11}),
    ("mask-missing", WHOLE, 5, set(range(2, 12))),
    ("mask-one-ahead", WHOLE, 5, {2, 3, 4, 5, 6}),
    ("mask-top-left", CHUNKS, 8, {5, 8}),
    ("mask-top-left", CHUNKS, 10, {5, 6, 7, 10}),
    ("mask-top-left", DECODE, 10, {7, 10}),
    ("mask-chunk-offset-0", LONG_CHUNK, 5, {2, 5}),
    ("mask-chunk-offset-0", LONG_CHUNK, 11, {5, 6, 7, 8, 11}),
    ("mask-chunk-offset-0", DECODE, 10, {7, 8, 9, 10}),
    ("mask-past-as-first-row", CHUNKS, 11, {5, 6, 7, 8, 9, 10, 11}),
    ("mask-past-as-last-row", CHUNKS, 8, {8}),
    ("mask-past-hidden-from-chunks", CHUNKS, 9, {8, 9}),
    ("mask-last-window-only", WHOLE, 9, {8, 9}),
    ("mask-last-window-only", WHOLE, 5, EVERYTHING),
    ("cache-overwritten-by-chunk", LONG_CHUNK, 9, {8, 9}),
    ("cache-overwritten-by-chunk", LONG_CHUNK, 4, {1, 2, 3, 4}),
    ("cache-one-short", CHUNKS, 8, {6, 7, 8}),
    ("cache-one-short", CHUNKS, 9, {6, 7, 8, 9}),
    ("ring-slot-one-late", DECODE, 8, {4, 6, 7, 8}),
    ("ring-slot-one-late", DECODE, 9, {4, 7, 8, 9}),
    ("crop-loses-evicted", (Forward(9), Crop(7), Forward(3)), 9, {6, 9}),
    ("crop-ignored-when-wrapped", (Forward(9), Crop(7), Forward(3)), 9, {6, 7, 8, 9}),
    ("crop-ignored-when-wrapped", (Forward(3), Crop(2), Forward(9)), 3, {0, 1, 3}),
    ("crop-slices-ring", (Forward(9), Crop(2), Forward(3)), 9, {6, 7, 9}),
    ("reset-keeps-local", (Forward(9), Reset(), Forward(3)), 9, {6, 7, 8, 9}),
]


@pytest.mark.parametrize(
    ("id", "steps", "row", "want"), SEEN, ids=[f"{id or 'right'}-{row}" for id, _, row, _ in SEEN]
)
def test_a_local_layer_sees(id: str, steps: tuple[Step, ...], row: int, want: set[int]) -> None:
    assert seen(id, steps, row) == want


@pytest.mark.parametrize(
    ("id", "steps", "row", "want"),
    [
        ("", DECODE, 11, EVERYTHING),
        ("window-on-global-layers", DECODE, 11, {8, 9, 10, 11}),
        ("mask-top-left", CHUNKS, 9, {0, 1, 9}),
        ("reset-keeps-local", (Forward(9), Reset(), Forward(3)), 9, {9}),
        ("crop-ignored-when-wrapped", (Forward(9), Crop(2), Forward(3)), 9, {0, 1, 9}),
        ("crop-ignored", (Forward(9), Crop(2), Forward(3)), 9, set(range(10))),
    ],
)
def test_a_global_layer_sees(id: str, steps: tuple[Step, ...], row: int, want: set[int]) -> None:
    assert seen(id, steps, row, GLOBAL_LAYER) == want
