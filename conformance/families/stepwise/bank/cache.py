"""Faults of the cache and of operations on it, which every family has."""

from __future__ import annotations

from conformance.families.stepwise.bank.entry import shared_table
from conformance.families.stepwise.conditions import (
    CACHED_AT_SPAN,
    CACHED_BEYOND_SPAN,
    CHUNKED_BEYOND_SPAN,
    CROP_WRAPPED,
    CROP_WRAPPED_INSIDE,
    DECODE_BEYOND_SPAN,
    FILLING,
    GLOBAL_LAYERS,
    LOCAL_LAYERS,
)
from conformance.faults import (
    CACHED,
    CROP,
    CROP_INSIDE,
    CROP_PAST_END,
    CROP_TO_ZERO,
    MASKED,
    REORDER,
    RESET,
)

__all__ = ["CACHE", "OPERATIONS"]

cache = shared_table("cache")

CACHE = (
    cache(
        "cache-one-short",
        "cache shorter than the window",
        "Local layers keep one token too few, so that the next token misses the oldest of its window.",
        CACHED_AT_SPAN,
        cache_short=1,
    ),
    cache(
        "cache-overwritten-by-chunk",
        "chunk overwrites what it needs",
        "A later chunk is written to the ring of a local layer before its first tokens have read it.",
        CHUNKED_BEYOND_SPAN,
        held_keys="last span in chunks",
    ),
    cache(
        "ring-slot-one-late",
        "ring off after wrap",
        "A full ring overwrites the second oldest token instead of the oldest.",
        DECODE_BEYOND_SPAN,
        ring_slot="one late",
    ),
    cache(
        "ring-positions-by-slot",
        "ring off after wrap",
        "Keys of a full ring are rotated by the slot that they lie in.",
        DECODE_BEYOND_SPAN,
        local_key_position="ring slot",
    ),
    cache(
        "keys-numbered-by-retained-row",
        "positions from retained rows",
        "After eviction, a local layer's keys are numbered from 0 and its queries are not.",
        CACHED_BEYOND_SPAN,
        local_key_position="retained row",
    ),
    cache(
        "keys-roped-then-renumbered",
        "K roped before caching, positions restart",
        "Local layers cache rotated keys, but number new tokens by what is left after eviction.",
        CACHED_BEYOND_SPAN,
        local_position="restarts",
    ),
    cache(
        "query-after-counter",
        "Q roped after the counter moved",
        "On top of a cache, Q is rotated with the counter that the update of K has already moved.",
        CACHED,
        query_counter="after update",
    ),
    cache(
        "unfilled-slots-seen",
        "validity mask missing while the buffer fills",
        "While the ring of a local layer fills, its empty slots take part in attention.",
        FILLING,
        unfilled="seen in local",
    ),
    cache(
        "unfilled-slots-seen-everywhere",
        "validity mask missing while the buffer fills",
        "While buffers fill, those of global layers too, their empty slots take part in attention.",
        CACHED,
        unfilled="seen in all",
    ),
)

OPERATIONS = (
    cache(
        "crop-ignored",
        "rollback a no-op",
        "Cutting the cache back does nothing.",
        CROP,
        crop="ignored",
    ),
    cache(
        "crop-ignored-when-wrapped",
        "rollback of a wrapped ring a no-op",
        "Cutting the cache back does nothing on local layers once they have evicted tokens.",
        CROP_WRAPPED,
        crop="ignored when wrapped",
    ),
    cache(
        "crop-loses-evicted",
        "rollback does not bring back evicted tokens",
        "After a cut, local layers miss the tokens that they had evicted.",
        CROP_WRAPPED_INSIDE,
        crop="evicted lost",
    ),
    cache(
        "crop-slices-ring",
        "ring sliced by logical length",
        "A cut keeps the first tokens of what a local layer holds, as if it held all of them.",
        CROP_WRAPPED_INSIDE,
        crop="slice of ring",
    ),
    cache(
        "crop-one-long",
        "crop off by one",
        "A cut keeps one token too many.",
        CROP_INSIDE,
        crop_error=1,
    ),
    cache(
        "crop-one-short",
        "crop off by one",
        "A cut keeps one token too few.",
        CROP_INSIDE,
        crop_error=-1,
    ),
    cache(
        "crop-to-zero-ignored",
        "crop to 0 or past the end",
        "A cut to length 0 does nothing.",
        CROP_TO_ZERO,
        crop_to_zero="ignored",
    ),
    cache(
        "crop-past-end-counted",
        "crop to 0 or past the end",
        "A cut beyond what the cache holds moves the position counter there.",
        CROP_PAST_END,
        crop_past_end="counted",
    ),
    cache(
        "crop-past-end-empties",
        "crop to 0 or past the end",
        "A cut beyond what the cache holds empties it.",
        CROP_PAST_END,
        crop_past_end="emptied",
    ),
    cache(
        "reset-ignored",
        "reset incomplete",
        "Emptying the cache does nothing.",
        RESET,
        reset="ignored",
    ),
    cache(
        "reset-zeroes-contents",
        "reset incomplete",
        "Emptying the cache fills K and V with zeros, but their number stays and they are attended.",
        RESET,
        reset="zeroes",
    ),
    cache(
        "reset-keeps-local",
        "reset incomplete",
        "Emptying the cache leaves local layers as they were.",
        RESET,
        LOCAL_LAYERS,
        reset="keeps local",
    ),
    cache(
        "reorder-ignored",
        "rows moved in some layers only",
        "Moving cache rows does nothing.",
        REORDER,
        reorder="none",
    ),
    cache(
        "reorder-local-only",
        "rows moved in some layers only",
        "Cache rows are moved in local layers only.",
        REORDER,
        GLOBAL_LAYERS,
        reorder="local only",
    ),
    cache(
        "reorder-global-only",
        "rows moved in some layers only",
        "Cache rows are moved in global layers only.",
        REORDER,
        LOCAL_LAYERS,
        reorder="global only",
    ),
    cache(
        "reorder-keys-only",
        "rows moved in some layers only",
        "Cache rows are moved in K, but not in V.",
        REORDER,
        reorder="keys only",
    ),
    cache(
        "reorder-leaves-mask",
        "rows moved without their mask",
        "Cache rows are moved, but the padding and segments that belong to them are not.",
        REORDER,
        MASKED,
        reorder_mask="stays",
    ),
)
