"""Knobs of the deviating model: one field for each small way to go wrong; every default is right.

A fault sets a few of them. Fields that different faults set are independent, so faults compose in any
order. Comments name the parts of docs/plamo3.md that fix the default.
Knobs of mask, cache, positions and batches are those of every family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from conformance.families.stepwise.knobs import StepKnobs, Width

__all__ = ["RIGHT", "HeadNorm", "Knobs", "PostNorm", "knobs_with"]

HeadNorm = Literal["before-rope", "after-rope", "all-heads", "missing"]
PostNorm = Literal["before-add", "after-add", "missing"]
Theta = Literal["own", "other", "default"]


@dataclass(frozen=True, kw_only=True)
class Knobs(StepKnobs):
    """What the deviating model does; each comment says what the value means where the name does not."""

    # Norms (§4). Offsets c of (c + w), site by site.
    pre_mixer_offset: float = 1.0
    post_mixer_offset: float = 1.0 / 5
    pre_mlp_offset: float = 1.0
    post_mlp_offset: float = 5**-1.5
    q_offset: float = 1.0
    k_offset: float = 1.0
    final_offset: float = 1.0
    centred_residual: bool = False  # subtract the mean first, in norms over D
    centred_heads: bool = False  # and in q_norm and k_norm
    residual_eps: float | None = None  # instead of the configured one, in norms over D
    head_eps: float | None = None  # and in q_norm and k_norm
    q_norm: HeadNorm = "before-rope"
    k_norm: HeadNorm = "before-rope"
    head_gains: Literal["own", "exchanged"] = "own"  # q_norm's weight on k and k_norm's on q
    v_norm: bool = False
    post_mixer_norm: PostNorm = "before-add"
    post_mlp_norm: PostNorm = "before-add"
    final_norm: bool = True
    block: Literal["sequential", "parallel"] = "sequential"  # parallel: the MLP takes the block's input

    # MLP (§4)
    gate_up: Literal["gate first", "up first", "interleaved"] = "gate first"
    activation: Literal["silu", "gelu", "gelu-tanh", "quick-gelu", "relu"] = "silu"

    # RoPE (§5)
    rope_pairs: Literal["halves", "neighbours"] = "halves"
    rope_sign: Literal[1, -1] = 1
    local_rope: bool = True
    global_rope: bool = True
    local_theta: Theta = "own"  # other: the theta of the other kind of layer
    global_theta: Theta = "own"
    rope_rounding: Literal["none", "frequencies", "angles", "tables", "positions"] = "none"  # to BF16
    local_yarn: bool = False
    global_yarn: bool = True  # in 2604
    yarn_factor: Literal["configured", "from lengths"] = "configured"
    yarn_length: Literal["original", "extended", "scaled"] = "original"  # maximum, or original * factor
    yarn_range: Literal["exact", "rounded", "dimensions"] = "exact"  # dimensions: of d, not of d/2 pairs
    yarn_betas: tuple[float, float] = (32.0, 1.0)
    yarn_blend: Literal["ramp", "all scaled", "none scaled"] = "ramp"
    amplitude: Literal["both", "missing", "cos", "sin", "twice", "queries"] = "both"
    local_amplitude: bool = False  # local layers get the amplitude, without scaled frequencies

    # Attention (§4)
    scale: Literal["head", "hidden", "none", "squared"] = "head"  # 1/sqrt: of d, of D/Hq, of 1, of d^2
    grouping: Literal["repeat", "tile"] = "repeat"
    qkv: Literal["blocks", "interleaved", "value before key"] = "blocks"
    score_cap: float | None = None

    # Layer pattern (§4)
    pattern_shift: int = 1  # layer i is global iff (i + shift) mod pattern == 0
    pattern_constant: int | None = None  # instead of the configured pattern
    kinds: Literal["as configured", "exchanged", "all local", "all global"] = "as configured"

    # Embedding and head (§3, §4)
    embedding_scale: Literal["none", "sqrt"] = "none"
    head: Literal["configured", "embedding", "unset"] = "configured"
    head_rows: Literal["vocabulary", "all", "last"] = "vocabulary"  # of a head with padding rows
    logit_cap: float | None = None
    logits: Literal["raw", "log-softmax"] = "raw"

    # Precision. All widths are equal in exact arithmetic (§4, §5).
    gain: Literal["after the cast", "before the cast"] = "after the cast"
    gain_width: Width = "run"  # of c + w
    rope_width: Width = "run"
    amplitude_width: Width = "run"  # wide: cos and sin are scaled before they are cast
    attention_width: Width = "run"
    mlp_width: Width = "run"
    residual_width: Width = "run"
    head_width: Width = "run"
    weights: Literal["stored", "float8"] = "stored"
    upcast: Literal["copy", "view in pre_mixer_norm", "view in pre_mlp_norm"] = "copy"  # then in place


RIGHT = Knobs()


def knobs_with(changes: Mapping[str, Any]) -> Knobs:
    """The right knobs with some changed."""
    return Knobs(**changes) if changes else RIGHT
