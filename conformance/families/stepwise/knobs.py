"""Knobs that the deviating models of all families have; every default is right.

A fault sets a few of them. Fields that different faults set are independent, so faults compose in any
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["StepKnobs", "Width"]

Width = Literal["run", "wide"]  # the run's dtype, or FP32 where that is wider


@dataclass(frozen=True, kw_only=True)
class StepKnobs:
    """Wrong ways to mask, cache and number what is fed step by step, and to round what is multiplied."""

    # Mask. Window: tokens more than the right span, by what a forward step is; None: no window.
    prefill_window: int | None = 0
    chunk_window: int | None = 0
    decode_window: int | None = 0
    global_window: bool = False
    windowless_from: int | None = None  # forward steps of at least so many columns have no window
    distance: Literal["index", "position"] = "index"
    causal: Literal["causal", "one ahead", "none"] = "causal"
    anchor: Literal["end", "start", "start of chunks"] = "end"  # start: row 0 meets key 0
    past_seen: Literal["by row", "as first row", "as last row", "never"] = "by row"
    held_keys: Literal["all", "last span in chunks", "last span"] = "all"
    empty_rows: Literal["uniform", "nan"] = "uniform"  # what a query that sees nothing attends

    # Cache
    cache_short: int | None = None  # tokens fewer than a local layer needs to keep; None: it keeps all
    ring_slot: Literal["right", "one late"] = "right"
    unfilled: Literal["hidden", "seen in local", "seen in all"] = "hidden"
    crop: Literal["cut", "ignored", "ignored when wrapped", "evicted lost", "slice of ring"] = "cut"
    crop_error: int = 0  # tokens kept beyond the asked length
    crop_to_zero: Literal["empties", "ignored"] = "empties"
    crop_past_end: Literal["kept", "counted", "emptied"] = "kept"
    reset: Literal["empties", "ignored", "keeps local", "zeroes"] = (
        "empties"  # zeroes: K and V stay, as zeros
    )
    reorder: Literal["all", "none", "local only", "global only", "keys only"] = "all"
    reorder_mask: Literal["moves", "stays"] = "moves"

    # Positions
    position_ids: Literal["used", "ignored"] = "used"
    past_length: Literal["counted", "capped"] = "counted"  # capped: as a local layer answers, at most W
    decode_position: Literal["next", "zero", "stuck"] = "next"
    decode_shift: int = 0
    chunk_position: Literal["next", "zero"] = "next"
    query_counter: Literal["before update", "after update"] = "before update"
    local_position: Literal["counted", "restarts"] = "counted"  # K roped with it, then cached
    local_key_position: Literal["written", "retained row", "ring slot"] = "written"
    padded_position: Literal["from first token", "by index", "by index in decode"] = "from first token"

    # Padding, segments, rows
    padding: Literal["masked", "seen", "seen when cached", "seen in local", "seen in global"] = "masked"
    padding_error: int = 0  # tokens after the padding that are masked with it
    segments: Literal["kept", "ignored", "ignored in local", "ignored in global", "ignored when cached"] = (
        "kept"
    )
    packing: Literal["given", "by positions"] = "given"  # by positions: without a mask, a jump is a border
    rows: Literal["apart", "first row's mask", "first row's positions", "see previous row"] = "apart"

    # Training mode: rows of at most span + this many tokens are not masked by the window.
    training_skip: int | None = 0
    training_padding: bool = True
    training_segments: bool = True

    # Norms.
    eps_place: Literal["under the root", "outside the root"] = "under the root"

    # Precision. Widths are equal in exact arithmetic.
    cache_dtype: Literal["run", "bfloat16", "float16", "float8"] = "run"
    norm_width: Width = "wide"
    softmax_width: Width = "wide"
    matmul: Literal["exact", "tf32", "bfloat16", "float16"] = "exact"  # rounding of matrix inputs

    # No fault, but an evaluation order: to which side numbers on the border of a rounding fall.
    lean: Literal["none", "up", "down"] = "none"
