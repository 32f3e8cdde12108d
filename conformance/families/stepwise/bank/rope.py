"""Faults of rotation, which every family has."""

from __future__ import annotations

from conformance.families.stepwise.bank.entry import shared_table
from conformance.families.stepwise.conditions import LOCAL_LAYERS

__all__ = ["ROTATION"]

rope = shared_table("rope")

ROTATION = (
    rope(
        "rope-interleaved",
        "interleaved pairs",
        "RoPE rotates neighbouring components instead of the pairs (j, j + d/2).",
        rope_pairs="neighbours",
    ),
    rope(
        "rope-backwards",
        "rotation reversed",
        "RoPE rotates the other way: sin has the wrong sign.",
        rope_sign=-1,
    ),
    rope(
        "rope-missing",
        "RoPE left out",
        "No layer rotates Q and K.",
        local_rope=False,
        global_rope=False,
    ),
    rope(
        "rope-missing-local",
        "RoPE left out",
        "Local layers do not rotate Q and K.",
        LOCAL_LAYERS,
        local_rope=False,
    ),
)
