"""Knobs of the deviating model: one field for each small way to go wrong; every default is right.

A fault sets a few of them. Fields that different faults set are independent, so faults compose in any
order. Comments name the parts of docs/gemma4.md that fix the default. Knobs of mask, cache, positions and
batches are those of every family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from conformance.families.stepwise.knobs import StepKnobs, Width

__all__ = ["RIGHT", "Grouping", "HeadNorm", "Knobs", "PostNorm", "Scale", "ValueNorm", "knobs_with"]

HeadNorm = Literal["before-rope", "after-rope", "all-heads", "missing"]
ValueNorm = Literal["each head", "all-heads", "missing"]
PostNorm = Literal["before-add", "after-add", "missing"]
Theta = Literal["own", "other", "default"]
Scale = Literal["none", "own", "other", "hidden"]  # 1/sqrt: of 1, of d, of the other kind's d, of D/Hq
Grouping = Literal["repeat", "tile", "other"]  # other: consecutive heads, as many as in the other kind


@dataclass(frozen=True, kw_only=True)
class Knobs(StepKnobs):
    """What the deviating model does; each comment says what the value means where the name does not."""

    # Norms (§2). What is added to the gain, site by site.
    input_offset: float = 0.0
    post_attention_offset: float = 0.0
    pre_feedforward_offset: float = 0.0
    post_feedforward_offset: float = 0.0
    q_offset: float = 0.0
    k_offset: float = 0.0
    final_offset: float = 0.0
    centred_residual: bool = False  # subtract the mean first, in norms over D
    centred_heads: bool = False  # and in q_norm and k_norm
    residual_eps: float | None = None  # instead of the configured one, in norms over D
    head_eps: float | None = None  # and in those of Q, K and V
    post_attention_norm: PostNorm = "before-add"
    post_feedforward_norm: PostNorm = "before-add"
    final_norm: bool = True
    # middle: post_attention and pre_feedforward
    norm_weights: Literal["own", "middle exchanged", "pre exchanged", "post exchanged"] = "own"
    block: Literal["sequential", "parallel"] = "sequential"  # parallel: the MLP takes the block's input

    # Layer scalar (§2): what it multiplies, or which one it is.
    layer_scalar: Literal[
        "stream",
        "nothing",
        "both branches",
        "attention branch",
        "mlp branch",
        "residual",  # what is carried past the MLP
        "stream twice",
        "stream after attention",
        "stream after both",
        "stream, of layer 0",
    ] = "stream"

    # Q, K and V (§3)
    q_norm: HeadNorm = "before-rope"
    k_norm: HeadNorm = "before-rope"
    head_gains: Literal["own", "exchanged"] = "own"  # q_norm's weight on k and k_norm's on q
    local_v_norm: ValueNorm = "each head"
    global_v_norm: ValueNorm = "each head"
    v_gain: Literal["none", "k_norm"] = "none"
    global_value: Literal["projection", "normed key", "turned key"] = "projection"
    local_projections: Literal["own", "exchanged", "k_proj for both"] = "own"

    # Attention (§3)
    local_scale: Scale = "none"
    global_scale: Scale = "none"
    local_grouping: Grouping = "repeat"
    global_grouping: Grouping = "repeat"
    score_cap: Literal["none", "50", "final"] = "none"  # final: as logits are capped

    # MLP (§2)
    gate_up: Literal["own", "exchanged"] = "own"
    # gelu-tanh-half: looked up by the argument in FP16, and rounded to FP16
    activation: Literal["gelu-tanh", "gelu", "silu", "quick-gelu", "relu", "gelu-tanh-half"] = "gelu-tanh"

    # RoPE (§4)
    rope_pairs: Literal["halves", "neighbours"] = "halves"
    rope_sign: Literal[1, -1] = 1
    local_rope: bool = True
    global_rope: bool = True
    local_theta: Theta = "own"  # other: the theta of the other kind of layer
    global_theta: Theta = "own"
    local_partial: bool = False  # the share of pairs that turn holds for local layers, too
    turning: Literal["configured", "all", "twice", "half", "a quarter of all"] = "configured"  # global pairs
    turning_pairs: Literal["of the head", "of the span"] = "of the head"  # halves of what is paired
    exponent: Literal["head", "span", "local head"] = "head"  # what 2j is divided by on global layers
    rope_rounding: Literal["none", "frequencies", "angles", "tables", "positions"] = "none"  # to BF16

    # Layers that are masked as global ones; their heads and RoPE stay as they are (§1).
    pattern_shift: int = 0  # layer i is masked as layer i - shift is listed
    kinds: Literal["as listed", "every sixth", "exchanged"] = "as listed"

    # Shared keys and values (§7): what a layer that shares attends.
    sharing: Literal[
        "finished",
        "own projections",  # of its own input, by the weights of the layer it should take from
        "own projections without a cache",
        "own projections on a cache",
        "zeros",
        "of the first layer",
        "of new tokens",  # not of those in the cache
        "turned again",
    ] = "finished"
    sharing_layers: int = 0  # more than configured

    # Embedding and head (§2)
    embedding_factor: Literal["rounded", "unrounded", "bfloat16", "missing"] = "rounded"
    head: Literal["embedding", "unset", "scaled embedding"] = "embedding"
    softcap: Literal["configured", "missing", "30", "twice", "clamped"] = "configured"
    logits: Literal["raw", "log-softmax"] = "raw"

    # Precision (§2, §3). All widths but bfloat16 are equal in exact arithmetic.
    gain: Literal["before the cast", "after the cast"] = "before the cast"
    rope_width: Width = "run"
    attention_width: Literal["run", "scores", "wide"] = "run"  # scores: all after RoPE
    mlp_width: Width = "run"
    residual_width: Width = "run"
    head_width: Width = "run"
    softcap_width: Literal["wide", "run", "bfloat16"] = "wide"
    weights: Literal["stored", "float8"] = "stored"
    upcast: Literal["copy", "view in input norm", "view in pre_feedforward norm"] = "copy"  # then in place


RIGHT = Knobs()


def knobs_with(changes: Mapping[str, Any]) -> Knobs:
    """The right knobs with some changed."""
    return Knobs(**changes) if changes else RIGHT
