"""Faults of precision: what is rounded, and the order of casts (docs/gemma4.md §2 to §4)."""

from __future__ import annotations

from typing import Any

from conformance.families.stepwise.bank.entry import cite, table
from conformance.families.stepwise.bank.precision import CACHE_WIDTH, MATRIX_INPUTS
from conformance.faults import BFLOAT16, FLOAT32, ROUNDING, Fault

__all__ = ["PRECISION"]

_DOCUMENT = "docs/gemma4.md"
precision = table("precision", _DOCUMENT)

_CASTS = "all orders of casts are equal in exact arithmetic"
_ONE_MORE = "a rounding more, no larger than those that every BF16 run has"


def _cast_order(id: str, section: int, what: str, why: str = _CASTS, **changes: Any) -> Fault:
    return precision(id, section, "order of casts", what, BFLOAT16, reveals=ROUNDING, why=why, **changes)


PRECISION = (
    *cite(MATRIX_INPUTS, _DOCUMENT, 2),
    precision(
        "weights-float8",
        5,
        "weights rounded",
        "Linear weights are rounded to FP8.",
        weights="float8",
    ),
    *cite(CACHE_WIDTH, _DOCUMENT, 3),
    precision(
        "embedding-factor-in-bfloat16",
        2,
        "embedding factor rounded too far",
        "sqrt(D) is rounded to BF16, whatever dtype was asked for.",
        FLOAT32,
        embedding_factor="bfloat16",
    ),
    precision(
        "softcap-in-bfloat16",
        2,
        "soft cap in BF16",
        "Logits are soft-capped in BF16, whatever dtype was asked for.",
        FLOAT32,
        rounds=True,
        softcap_width="bfloat16",
    ),
    precision(
        "upcast-aliases-input",
        2,
        "up-cast that is a view",
        "input_layernorm works in place on an up-cast that in FP32 is a view, and overwrites the residual.",
        FLOAT32,
        upcast="view in input norm",
    ),
    precision(
        "upcast-aliases-pre-feedforward",
        2,
        "up-cast that is a view",
        "pre_feedforward_layernorm works in place on an up-cast that in FP32 is a view, and overwrites the "
        "residual.",
        FLOAT32,
        upcast="view in pre_feedforward norm",
    ),
    _cast_order(
        "norm-gain-after-cast",
        2,
        "Norms are cast first and multiply by the gain after that.",
        gain="after the cast",
    ),
    _cast_order(
        "norm-in-bfloat16", 2, "Norms compute mean square and quotient in BF16.", _ONE_MORE, norm_width="run"
    ),
    _cast_order(
        "embedding-factor-unrounded",
        2,
        "Embeddings are multiplied by sqrt(D) in FP32 and cast after that.",
        "the rounding of a factor, which the noise of every BF16 run contains",
        embedding_factor="unrounded",
    ),
    _cast_order("rope-in-float32", 4, "Q and K are rotated in FP32.", rope_width="wide"),
    _cast_order(
        "attention-in-float32",
        3,
        "RoPE and attention stay in FP32; only their result is cast.",
        attention_width="wide",
    ),
    _cast_order(
        "scores-in-float32",
        3,
        "Scores and probabilities stay in FP32 after RoPE.",
        attention_width="scores",
    ),
    _cast_order("softmax-in-bfloat16", 3, "Softmax is computed in BF16.", _ONE_MORE, softmax_width="run"),
    _cast_order(
        "mlp-product-in-float32",
        2,
        "gelu(gate) times up is computed in FP32 and cast once.",
        mlp_width="wide",
    ),
    _cast_order("residual-in-float32", 2, "The residual stays in FP32.", residual_width="wide"),
    _cast_order("head-in-float32", 2, "Logits are computed and soft-capped in FP32.", head_width="wide"),
    _cast_order(
        "softcap-in-run-dtype", 2, "The soft cap is rounded after each of its steps.", softcap_width="run"
    ),
)
