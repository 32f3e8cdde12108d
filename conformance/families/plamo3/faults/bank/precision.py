"""Faults of precision: what is rounded, and the order of casts (docs/plamo3.md §4, §5)."""

from __future__ import annotations

from typing import Any

from conformance.families.stepwise.bank.entry import cite, table
from conformance.families.stepwise.bank.precision import CACHE_WIDTH, MATRIX_INPUTS
from conformance.faults import BFLOAT16, FLOAT32, ROUNDING, Fault

__all__ = ["PRECISION"]

_DOCUMENT = "docs/plamo3.md"
precision = table("precision", _DOCUMENT)

_CASTS = "all orders of casts are equal in exact arithmetic"


def _cast_order(id: str, section: int, what: str, **changes: Any) -> Fault:
    return precision(id, section, "order of casts", what, BFLOAT16, reveals=ROUNDING, why=_CASTS, **changes)


PRECISION = (
    *cite(MATRIX_INPUTS, _DOCUMENT, 4),
    precision(
        "weights-float8",
        2,
        "weights rounded",
        "Linear weights are rounded to FP8 because linear_type says so.",
        weights="float8",
    ),
    *cite(CACHE_WIDTH, _DOCUMENT, 7),
    precision(
        "upcast-aliases-pre-mixer",
        4,
        "up-cast that is a view",
        "pre_mixer_norm works in place on an up-cast that in FP32 is a view, and overwrites the residual.",
        FLOAT32,
        upcast="view in pre_mixer_norm",
    ),
    precision(
        "upcast-aliases-pre-mlp",
        4,
        "up-cast that is a view",
        "pre_mlp_norm works in place on an up-cast that in FP32 is a view, and overwrites the residual.",
        FLOAT32,
        upcast="view in pre_mlp_norm",
    ),
    _cast_order(
        "norm-gain-before-cast",
        4,
        "Norms multiply by the gain in FP32 and cast last.",
        gain="before the cast",
    ),
    precision(
        "norm-in-bfloat16",
        4,
        "order of casts",
        "Norms compute mean square and quotient in BF16.",
        BFLOAT16,
        reveals=ROUNDING,
        why="a rounding more, no larger than those that every BF16 run has",
        norm_width="run",
    ),
    _cast_order(
        "norm-gain-in-float32",
        4,
        "Offset and weight of norms are added and multiplied in FP32, after the input was cast.",
        gain_width="wide",
    ),
    _cast_order(
        "norm-all-in-float32",
        4,
        "Norms are computed in FP32 from the sum of offset and weight on; only their result is cast.",
        gain="before the cast",
        gain_width="wide",
    ),
    _cast_order("rope-in-float32", 5, "Q and K are rotated in FP32.", rope_width="wide"),
    _cast_order(
        "amplitude-before-cast",
        5,
        "cos and sin are multiplied by the amplitude before they are cast.",
        amplitude_width="wide",
    ),
    _cast_order(
        "attention-in-float32",
        4,
        "RoPE and attention stay in FP32; only their result is cast.",
        attention_width="wide",
    ),
    precision(
        "softmax-in-bfloat16",
        4,
        "order of casts",
        "Softmax is computed in BF16.",
        BFLOAT16,
        reveals=ROUNDING,
        why="a rounding more, no larger than those that every BF16 run has",
        softmax_width="run",
    ),
    _cast_order(
        "mlp-product-in-float32",
        4,
        "silu(gate) times up is computed in FP32 and cast once.",
        mlp_width="wide",
    ),
    _cast_order("residual-in-float32", 4, "The residual stays in FP32.", residual_width="wide"),
    _cast_order("head-in-float32", 4, "Logits are computed in FP32.", head_width="wide"),
)
