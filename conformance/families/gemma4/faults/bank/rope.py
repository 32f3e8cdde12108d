"""Faults of RoPE, and of which layers the window is for (docs/gemma4.md §1, §4)."""

from __future__ import annotations

from conformance.families.gemma4.faults.conditions import (
    NOT_EVERY_SIXTH,
    PARTIAL,
    PARTIAL_LOCAL,
    UNLIKE_HEADS,
)
from conformance.families.stepwise.bank.entry import cite, table
from conformance.families.stepwise.bank.rope import ROTATION
from conformance.families.stepwise.conditions import (
    GLOBAL_BEYOND_SPAN,
    LOCAL_LAYERS,
    POSITIONS_BEYOND_256,
    not_default,
)

__all__ = ["PATTERN", "ROPE"]

pattern = table("pattern", "docs/gemma4.md")
rope = table("rope", "docs/gemma4.md")

ROPE = (
    *cite(ROTATION, "docs/gemma4.md", 4),
    rope(
        "rope-missing-global",
        4,
        "RoPE left out",
        "Global layers do not rotate Q and K.",
        global_rope=False,
    ),
    rope(
        "theta-local-is-global",
        4,
        "theta of the other kind of layer",
        "Local layers use the theta of global layers.",
        LOCAL_LAYERS,
        local_theta="other",
    ),
    rope(
        "theta-global-is-local",
        4,
        "theta of the other kind of layer",
        "Global layers use the theta of local layers.",
        global_theta="other",
    ),
    rope(
        "thetas-exchanged",
        4,
        "theta of the other kind of layer",
        "Local layers use the theta of global layers, and the reverse.",
        local_theta="other",
        global_theta="other",
    ),
    rope(
        "theta-local-defaulted",
        4,
        "theta defaulted",
        "Local layers use a theta of 10000, whatever is configured.",
        LOCAL_LAYERS,
        not_default("rope_local_theta", 10_000.0),
        local_theta="default",
    ),
    rope(
        "theta-global-defaulted",
        4,
        "theta defaulted",
        "Global layers use a theta of 1000000, whatever is configured.",
        not_default("rope_theta", 1_000_000.0),
        global_theta="default",
    ),
    rope(
        "partial-rope-missing",
        4,
        "share of pairs wrong",
        "Every pair turns on global layers.",
        PARTIAL,
        turning="all",
    ),
    rope(
        "partial-rope-twice-as-many",
        4,
        "share of pairs wrong",
        "Twice as many pairs turn on global layers: the share is taken of the components.",
        PARTIAL,
        turning="twice",
    ),
    rope(
        "partial-rope-half-as-many",
        4,
        "share of pairs wrong",
        "Half as many pairs turn on global layers: the share is halved twice.",
        turning="half",
    ),
    rope(
        "partial-rope-defaulted",
        4,
        "share of pairs wrong",
        "A quarter of the pairs turns on global layers, whatever is configured.",
        not_default("partial_rotary_factor", 0.25),
        turning="a quarter of all",
    ),
    rope(
        "partial-rope-on-local-too",
        4,
        "partial RoPE on local layers",
        "On local layers, too, a share of the pairs turns.",
        PARTIAL_LOCAL,
        local_partial=True,
    ),
    rope(
        "partial-rope-on-local-instead",
        4,
        "partial RoPE on local layers",
        "A share of the pairs turns on local layers, and every pair on global ones.",
        PARTIAL,
        local_partial=True,
        turning="all",
    ),
    rope(
        "partial-rope-paired-inside",
        4,
        "partial RoPE as of a smaller head",
        "On global layers the components that turn are the first ones, paired among themselves.",
        PARTIAL,
        turning_pairs="of the span",
    ),
    rope(
        "partial-rope-exponent-of-span",
        4,
        "partial RoPE as of a smaller head",
        "The exponent on global layers divides by the number of components that turn instead of d.",
        PARTIAL,
        exponent="span",
    ),
    rope(
        "partial-rope-of-smaller-head",
        4,
        "partial RoPE as of a smaller head",
        "On global layers the first components turn as a smaller head would, in pairs and frequencies.",
        PARTIAL,
        turning_pairs="of the span",
        exponent="span",
    ),
    rope(
        "rope-exponent-of-local-head",
        4,
        "head size of the other kind of layer",
        "The exponent on global layers divides by the d of local layers.",
        UNLIKE_HEADS,
        exponent="local head",
    ),
    rope(
        "rope-frequencies-in-bfloat16",
        4,
        "angles or frequencies in BF16",
        "Inverse frequencies are rounded to BF16.",
        rope_rounding="frequencies",
    ),
    rope(
        "rope-angles-in-bfloat16",
        4,
        "angles or frequencies in BF16",
        "The angles, position times frequency, are rounded to BF16.",
        rope_rounding="angles",
    ),
    rope(
        "rope-positions-in-bfloat16",
        4,
        "angles or frequencies in BF16",
        "Positions are rounded to BF16 before they are multiplied.",
        POSITIONS_BEYOND_256,
        rope_rounding="positions",
    ),
    rope(
        "rope-tables-in-bfloat16",
        4,
        "angles or frequencies in BF16",
        "cos and sin are kept in BF16, also where the run is in a wider dtype.",
        rope_rounding="tables",
    ),
)

PATTERN = (
    pattern(
        "pattern-one-late",
        1,
        "layer pattern off by one",
        "Layer i has the window that layer i - 1 should have, or lacks it.",
        GLOBAL_BEYOND_SPAN,
        pattern_shift=1,
    ),
    pattern(
        "pattern-one-early",
        1,
        "layer pattern off by one",
        "Layer i has the window that layer i + 1 should have, or lacks it.",
        GLOBAL_BEYOND_SPAN,
        pattern_shift=-1,
    ),
    pattern(
        "pattern-always-6",
        1,
        "pattern constant instead of read",
        "All layers but every sixth and the last have the window, whatever layer_types says.",
        GLOBAL_BEYOND_SPAN,
        NOT_EVERY_SIXTH,
        kinds="every sixth",
    ),
    pattern(
        "layers-exchanged",
        1,
        "local and global exchanged",
        "Global layers have the window, and local ones have none.",
        GLOBAL_BEYOND_SPAN,
        kinds="exchanged",
    ),
)
