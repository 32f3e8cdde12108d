"""Faults of the layer pattern (docs/plamo3.md §4)."""

from __future__ import annotations

from conformance.families.stepwise.bank.entry import table
from conformance.families.stepwise.conditions import GLOBAL_LAYERS, LOCAL_LAYERS, not_default

__all__ = ["PATTERN"]

pattern = table("pattern", "docs/plamo3.md")

PATTERN = (
    pattern(
        "pattern-one-late",
        4,
        "layer pattern off by one",
        "Layer i is global where i mod pattern is 0, the first layer included.",
        pattern_shift=0,
    ),
    pattern(
        "pattern-one-early",
        4,
        "layer pattern off by one",
        "Layer i is global where (i + 2) mod pattern is 0.",
        pattern_shift=2,
    ),
    *(
        pattern(
            f"pattern-always-{period}",
            4,
            "pattern constant instead of read",
            f"Every layer whose number is a multiple of {period} is global, whatever pattern is configured.",
            not_default("sliding_window_pattern", period),
            pattern_constant=period,
            twins=("layers-all-local",) if period == 8 else (),
        )
        for period in (6, 8)
    ),
    pattern(
        "layers-exchanged",
        4,
        "local and global exchanged",
        "Local layers are global, and the reverse.",
        kinds="exchanged",
    ),
    pattern(
        "layers-all-local",
        4,
        "one kind of layer",
        "Every layer is local.",
        GLOBAL_LAYERS,
        twins=("pattern-always-8",),
        kinds="all local",
    ),
    pattern(
        "layers-all-global",
        4,
        "one kind of layer",
        "Every layer is global.",
        LOCAL_LAYERS,
        kinds="all global",
    ),
)
