"""Faults of the mask, the window and training mode, which every family has."""

from __future__ import annotations

from typing import Any

from conformance.families.stepwise.bank.entry import shared_table
from conformance.families.stepwise.conditions import (
    AT_SPAN,
    BEYOND_SPAN,
    CHUNKED_AT_SPAN,
    CHUNKED_BEYOND_SPAN,
    DECODE_AT_SPAN,
    DECODE_BEYOND_SPAN,
    GLOBAL_BEYOND_SPAN,
    LOCAL_LAYERS,
    PREFILL_AT_SPAN,
    PREFILL_BEYOND_SPAN,
    TRAINING_BEYOND_SPAN,
    TRAINING_ONE_BEYOND_SPAN,
    several_columns_beyond_span,
)
from conformance.faults import (
    CACHED,
    CHUNKED,
    NOT_FINITE,
    PADDED,
    PADDING_AHEAD,
    POSITIONS,
    SEGMENTS,
    SEVERAL,
    TRAINING,
    Fault,
    either,
)

__all__ = ["MASK", "MODE", "WINDOW"]

mask = shared_table("mask")
mode = shared_table("mode")

# What is wrong → what a sentence says of it, tokens more, and the name of the kind.
_WRONG: dict[str, tuple[str, int | None, str]] = {
    "one-long": ("Local layers see one token too many", 1, "inclusive bound"),
    "one-short": ("Local layers see one token too few", -1, "exclusive bound"),
    "missing": ("Local layers have no window", None, "window missing"),
}
_STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("", ("prefill_window", "chunk_window", "decode_window")),
    "-in-prefill": (
        " in steps of several tokens, but the right number in decode",
        ("prefill_window", "chunk_window"),
    ),
    "-in-chunks": (" in later chunks of a split prefill", ("chunk_window",)),
    "-in-decode": (" in decode, when a query has one row", ("decode_window",)),
}
_REACHES = {
    "": (BEYOND_SPAN, AT_SPAN),
    "-in-prefill": (PREFILL_BEYOND_SPAN, PREFILL_AT_SPAN),
    "-in-chunks": (CHUNKED_BEYOND_SPAN, CHUNKED_AT_SPAN),
    "-in-decode": (DECODE_BEYOND_SPAN, DECODE_AT_SPAN),
}


def _windows() -> list[Fault]:
    faults: list[Fault] = []
    for stage, (place, knobs) in _STAGES.items():
        for wrong, (sentence, more, kind) in _WRONG.items():
            changes: dict[str, Any] = dict.fromkeys(knobs, more)
            beyond, at = _REACHES[stage]
            where = at if wrong == "one-short" else beyond
            named = f"{kind} in one stage" if stage and more is not None else kind
            faults.append(mask(f"window-{wrong}{stage}", named, f"{sentence}{place}.", where, **changes))
    return faults


WINDOW = (
    *_windows(),
    mask(
        "window-one-long-on-right-cache",
        "inclusive bound in one stage",
        "The mask of local layers lets one token too many through, but their cache keeps only what the right "
        "window needs: decode and the first token of a later chunk see the right number.",
        PREFILL_BEYOND_SPAN,
        prefill_window=1,
        chunk_window=1,
        decode_window=1,
        cache_short=0,
    ),
    mask(
        "window-on-global-layers",
        "window on global layers",
        "Global layers have the window of local layers too.",
        GLOBAL_BEYOND_SPAN,
        global_window=True,
    ),
    *(
        mask(
            f"window-missing-from-{columns}-tokens",
            "kernel switch at a length",
            f"Forward steps of {columns} tokens or more take a kernel without the window.",
            several_columns_beyond_span(columns),
            windowless_from=columns,
        )
        for columns in (8, 16, 32, 64)
    ),
    mask(
        "window-by-position-ids",
        "window measured in position ids",
        "The window is measured in differences of position ids instead of places in the row.",
        POSITIONS,
        LOCAL_LAYERS,
        distance="position",
    ),
)

MASK = (
    mask(
        "mask-missing",
        "causal mask wrong",
        "Tokens see later tokens of their step.",
        SEVERAL,
        causal="none",
    ),
    mask(
        "mask-one-ahead",
        "causal mask wrong",
        "Every token sees the next one too.",
        SEVERAL,
        causal="one ahead",
    ),
    mask(
        "mask-top-left",
        "causal mask anchored top-left",
        "On top of a cache, the first new token sees the oldest kept key alone, the next one two, and so on.",
        CACHED,
        anchor="start",
    ),
    mask(
        "mask-chunk-offset-0",
        "chunk mask with offset 0",
        "Later chunks get the mask of a first chunk, causal and window, laid on the keys of the cache.",
        CHUNKED,
        anchor="start of chunks",
    ),
    mask(
        "mask-past-as-first-row",
        "past seen by chunk, not by row",
        "All tokens of a later chunk see the past that its first token may see.",
        CHUNKED_BEYOND_SPAN,
        past_seen="as first row",
    ),
    mask(
        "mask-past-as-last-row",
        "past seen by chunk, not by row",
        "All tokens of a later chunk see only the past that its last token may see.",
        CHUNKED_BEYOND_SPAN,
        past_seen="as last row",
    ),
    mask(
        "mask-past-hidden-from-chunks",
        "past seen by chunk, not by row",
        "Tokens of a later chunk do not see the cache.",
        CHUNKED,
        past_seen="never",
    ),
    mask(
        "mask-last-window-only",
        "mask clamped to the last W keys",
        "Local layers mask all but the last W keys; tokens that see none of those attend everything.",
        PREFILL_BEYOND_SPAN,
        held_keys="last span",
    ),
    mask(
        "mask-last-window-only-nan",
        "mask clamped to the last W keys",
        "Local layers mask all but the last W keys; tokens that see none of those become NaN.",
        either(PREFILL_BEYOND_SPAN, PADDED),
        reveals=NOT_FINITE,
        why="a softmax over nothing, which spreads through later layers",
        held_keys="last span",
        empty_rows="nan",
    ),
)

MODE = (
    mode(
        "training-mask-one-late",
        "mask skipped in training one token too far",
        "Training mode skips the window up to one token more than it hides nothing.",
        TRAINING_ONE_BEYOND_SPAN,
        training_skip=1,
    ),
    mode(
        "training-window-missing",
        "train() differs from eval()",
        "Training mode has no window.",
        TRAINING_BEYOND_SPAN,
        training_skip=None,
    ),
    mode(
        "training-padding-seen",
        "padding mask dropped in training",
        "Training mode drops the padding mask.",
        TRAINING,
        PADDING_AHEAD,
        training_padding=False,
    ),
    mode(
        "training-segments-ignored",
        "train() differs from eval()",
        "Training mode lets tokens see other segments of a packed row.",
        TRAINING,
        SEGMENTS,
        training_segments=False,
    ),
)
