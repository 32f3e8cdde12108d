"""Faults of positions, padding, segments and batches, which every family has."""

from __future__ import annotations

from conformance.families.stepwise.bank.entry import shared_table
from conformance.families.stepwise.conditions import (
    CACHED_BEYOND_SPAN,
    GLOBAL_LAYERS,
    LOCAL_LAYERS,
)
from conformance.faults import (
    BATCH,
    CACHED,
    CHUNKED,
    DECODE,
    MASKED,
    NOT_FINITE,
    NOTHING,
    PADDED,
    PADDING_AHEAD,
    POSITION_JUMPS,
    POSITIONS,
    SEGMENTS,
    UNLIKE_ROWS,
)

__all__ = ["BATCHES", "PADDED_POSITION", "PADDING", "POSITION", "SEGMENT"]

positions = shared_table("positions")
padding = shared_table("padding")
segments = shared_table("segments")
batch = shared_table("batch")

POSITION = (
    positions(
        "position-ids-ignored",
        "position ids ignored",
        "Given position ids are ignored: tokens are counted.",
        POSITIONS,
        position_ids="ignored",
    ),
    positions(
        "positions-jump-starts-segment",
        "positions taken for segments",
        "Where no mask is given, a jump of the position ids is taken for the border of packed rows.",
        POSITION_JUMPS,
        packing="by positions",
    ),
    positions(
        "position-capped-at-window",
        "length of a local layer as position",
        "New tokens are numbered from the length that a local layer's cache answers, at most W.",
        CACHED_BEYOND_SPAN,
        past_length="capped",
    ),
    positions(
        "decode-position-zero",
        "decoded tokens at position 0",
        "Every decoded token is at position 0.",
        DECODE,
        decode_position="zero",
    ),
    positions(
        "decode-position-stuck",
        "decode position wrong",
        "Every decoded token is at the position of the first one.",
        DECODE,
        decode_position="stuck",
    ),
    positions(
        "decode-position-one-late",
        "decode position wrong",
        "Decoded tokens are one position too late.",
        DECODE,
        decode_shift=1,
    ),
    positions(
        "decode-position-one-early",
        "decode position wrong",
        "Decoded tokens are one position too early.",
        DECODE,
        decode_shift=-1,
    ),
    positions(
        "chunk-position-zero",
        "chunk positions restart",
        "Positions restart at 0 with every chunk of a split prefill.",
        CHUNKED,
        chunk_position="zero",
    ),
)

PADDED_POSITION = (
    positions(
        "padded-rows-by-index",
        "padded rows numbered by index",
        "Padded rows are numbered by place, padding included, instead of from their first token.",
        PADDING_AHEAD,
        reveals=NOTHING,
        why="RoPE sees differences of positions alone",
        padded_position="by index",
    ),
    positions(
        "padded-rows-by-index-when-cached",
        "padded rows numbered by index",
        "Padded rows are numbered from their first token in the prefill, but by place on top of the cache.",
        PADDING_AHEAD,
        CACHED,
        padded_position="by index in decode",
    ),
)

PADDING = (
    padding(
        "padding-seen",
        "padding mask missing",
        "Padding is attended.",
        PADDING_AHEAD,
        padding="seen",
    ),
    padding(
        "padding-seen-when-cached",
        "mask sliced to the new token",
        "On top of a cache, the padding mask covers the new tokens only: cached padding is attended.",
        PADDING_AHEAD,
        CACHED,
        padding="seen when cached",
    ),
    padding(
        "padding-seen-in-local",
        "padding mask missing in some layers",
        "Local layers attend padding.",
        PADDING_AHEAD,
        LOCAL_LAYERS,
        padding="seen in local",
    ),
    padding(
        "padding-seen-in-global",
        "padding mask missing in some layers",
        "Global layers attend padding.",
        PADDING_AHEAD,
        GLOBAL_LAYERS,
        padding="seen in global",
    ),
    padding(
        "padding-mask-one-long",
        "padding mask off by one",
        "The first token after padding is masked too.",
        PADDING_AHEAD,
        padding_error=1,
    ),
    padding(
        "padding-rows-nan",
        "fully masked rows give NaN",
        "Queries of padding, which see nothing, become NaN.",
        PADDED,
        reveals=NOT_FINITE,
        why="a softmax over nothing, which spreads through later layers",
        empty_rows="nan",
    ),
)

SEGMENT = (
    segments(
        "segments-ignored",
        "segments ignored",
        "Tokens see other segments of a packed row.",
        SEGMENTS,
        segments="ignored",
    ),
    segments(
        "segments-ignored-in-local",
        "segments ignored in some layers",
        "In local layers, tokens see other segments of a packed row.",
        SEGMENTS,
        LOCAL_LAYERS,
        segments="ignored in local",
    ),
    segments(
        "segments-ignored-in-global",
        "segments ignored in some layers",
        "In global layers, tokens see other segments of a packed row.",
        SEGMENTS,
        GLOBAL_LAYERS,
        segments="ignored in global",
    ),
    segments(
        "segments-ignored-when-cached",
        "segments ignored",
        "On top of a cache, tokens see other segments of a packed row.",
        SEGMENTS,
        CACHED,
        segments="ignored when cached",
    ),
)

BATCHES = (
    batch(
        "rows-share-mask",
        "rows depend on their neighbours",
        "All rows get the padding and segments of the first one.",
        BATCH,
        MASKED,
        rows="first row's mask",
    ),
    batch(
        "rows-share-positions",
        "rows depend on their neighbours",
        "All rows get the positions of the first one.",
        UNLIKE_ROWS,
        rows="first row's positions",
    ),
    batch(
        "rows-see-previous",
        "rows depend on their neighbours",
        "In global layers, every row sees the keys of the row before it too, as if both were one sequence.",
        BATCH,
        GLOBAL_LAYERS,
        rows="see previous row",
    ),
)
