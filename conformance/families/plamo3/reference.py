"""The oracle: PLaMo 3 as docs/plamo3.md describes it, for both releases, with nothing clever.

One forward pass over whole rows, no cache. Axes: B rows, T positions (S where they are keys), D
hidden, H query heads, K key/value heads, G query heads per key/value head, d head_dim, F inner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.base import GLOBAL
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["PUBLIC_CASTS", "Casts", "forward", "inverse_frequencies", "visible"]

BETA_FAST, BETA_SLOW = 32.0, 1.0
OFFSETS = {"post_mixer_norm": 1.0 / 5, "post_mlp_norm": 5**-1.5}  # every other site: 1 (§4)


@dataclass(frozen=True)
class Casts:
    """Where a low-precision run rounds. All choices are equal in exact arithmetic (§4, §5).

    Attributes:
        fold_offset: add c to w once, in the run's dtype, before anything else (engines that fold).
        gain_first: multiply the gain in FP32 and cast last, instead of casting first.
        wide: keep RoPE, attention, and silu(gate) * up in FP32 and round their results only.
    """

    fold_offset: bool = False
    gain_first: bool = False
    wide: bool = False


PUBLIC_CASTS = Casts()


def forward(
    spec: Plamo3Spec,
    weights: Mapping[str, Tensor],
    tokens: Tensor,  # [B, T] int64
    positions: Tensor,  # [B, T] int64
    segments: Tensor,  # [B, T] int64; -1 marks padding
    casts: Casts = PUBLIC_CASTS,
) -> Tensor:
    """Logits [B, T, V] in the dtype of `weights` (float64, float32 or bfloat16)."""
    h = weights["model.embed_tokens.weight"][tokens]  # [B, T, D]
    for layer, kind in enumerate(spec.layer_kinds):
        prefix = f"model.layers.layers.{layer}."
        block = {k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)}

        def norm(site: str, x: Tensor, block: dict[str, Tensor] = block) -> Tensor:
            return rms_norm(x, block[site + ".weight"], OFFSETS.get(site, 1.0), spec.rms_norm_eps, casts)

        mixed = attention(spec, kind, block, norm("pre_mixer_norm", h), positions, segments, casts)
        h = h + norm("post_mixer_norm", mixed)
        h = h + norm("post_mlp_norm", mlp(block, norm("pre_mlp_norm", h), casts))
    h = rms_norm(h, weights["model.norm.weight"], 1.0, spec.rms_norm_eps, casts)
    head = weights["model.embed_tokens.weight" if spec.tie_word_embeddings else "lm_head.weight"]
    return h @ head[: spec.vocab_size].T  # [B, T, V]


def rms_norm(x: Tensor, w: Tensor, offset: float, eps: float, casts: Casts) -> Tensor:
    """(c + w) * x / sqrt(mean(x^2) + eps) over the last axis (§4)."""
    wide = x.to(at_least_float32(x.dtype))
    unit = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    gain = (w.to(wide.dtype) + offset).to(x.dtype) if casts.fold_offset else w + offset
    if casts.gain_first:
        return (unit * gain.to(wide.dtype)).to(x.dtype)
    return unit.to(x.dtype) * gain


def mlp(block: Mapping[str, Tensor], x: Tensor, casts: Casts) -> Tensor:
    """down(silu(gate) * up), gate and up stacked in one projection (§4)."""
    gate, up = (x @ block["mlp.gate_up_proj.weight"].T).chunk(2, dim=-1)  # [B, T, F] each
    if casts.wide:
        dtype = at_least_float32(x.dtype)
        inner = (torch.nn.functional.silu(gate.to(dtype)) * up.to(dtype)).to(x.dtype)
    else:
        inner = torch.nn.functional.silu(gate) * up
    return inner @ block["mlp.down_proj.weight"].T


def attention(
    spec: Plamo3Spec,
    kind: str,
    block: Mapping[str, Tensor],
    x: Tensor,
    positions: Tensor,
    segments: Tensor,
    casts: Casts,
) -> Tensor:
    """Grouped-query attention with q/k norm before RoPE (§4 to §6)."""
    batch, length, _ = x.shape
    d, kv_heads, groups = spec.head_dim, spec.num_key_value_heads, spec.groups
    qkv = x @ block["mixer.qkv_proj.weight"].T
    q, k, v = torch.split(qkv, [spec.num_attention_heads * d, kv_heads * d, kv_heads * d], dim=-1)
    q = rms_norm(
        q.view(batch, length, -1, d), block["mixer.q_norm.weight"], 1.0, spec.rms_norm_eps, casts
    )  # BTHd
    k = rms_norm(
        k.view(batch, length, -1, d), block["mixer.k_norm.weight"], 1.0, spec.rms_norm_eps, casts
    )  # BTKd
    v = v.view(batch, length, kv_heads, d)  # BSKd
    if casts.wide:
        q, k, v = (t.to(at_least_float32(x.dtype)) for t in (q, k, v))
    cos, sin = rotation(spec, kind, positions, q.dtype)  # B T 1 d
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    q = q.view(batch, length, kv_heads, groups, d)  # consecutive query heads share one K/V head
    scores = torch.einsum("btkgd,bskd->bkgts", q, k) / math.sqrt(d)
    seen = visible(segments, spec.window_span if kind != GLOBAL else None)  # [B, T, S]
    scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    # Padding rows see nothing; a uniform row keeps them finite, and nobody reads them.
    scores = torch.where(seen.any(-1)[:, None, None, :, None], scores, torch.zeros_like(scores))
    probabilities = torch.softmax(scores.to(at_least_float32(x.dtype)), dim=-1).to(v.dtype)
    mixed = torch.einsum("bkgts,bskd->btkgd", probabilities, v).to(x.dtype)
    return mixed.reshape(batch, length, -1) @ block["mixer.o_proj.weight"].T


def visible(segments: Tensor, span: int | None) -> Tensor:
    """[B, T, S]: may query t see key s? Causal, own segment, no padding, within `span` keys (§6)."""
    length = segments.shape[1]
    index = torch.arange(length)
    distance = index[:, None] - index[None, :]  # [T, S]: of places in the row, not of position ids
    band = distance >= 0
    if span is not None:
        band = band & (distance <= span - 1)
    own = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, None, :]
    return band & own


def rotation(spec: Plamo3Spec, kind: str, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [B, T, 1, d]: angles in FP32 (FP64 runs: FP64), cast, then times the amplitude (§5)."""
    frequencies, amplitude = inverse_frequencies(spec, kind)
    wide = at_least_float32(dtype)
    angle = positions[:, :, None].to(wide) * frequencies.to(wide)  # [B, T, d/2]
    angle = torch.cat([angle, angle], dim=-1)[:, :, None, :]
    return angle.cos().to(dtype) * amplitude, angle.sin().to(dtype) * amplitude


def inverse_frequencies(spec: Plamo3Spec, kind: str) -> tuple[Tensor, float]:
    """Inverse frequencies [d/2] in float64, and the amplitude of cos and sin (§5)."""
    pairs = spec.head_dim // 2
    theta = spec.rope_theta if kind == GLOBAL else spec.rope_local_theta
    plain = theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    if kind != GLOBAL or spec.release == "4k":
        return plain, 1.0

    def turning(beta: float) -> float:
        return pairs * math.log(spec.initial_context_length / (beta * 2 * math.pi)) / math.log(theta)

    low, high = turning(BETA_FAST), turning(BETA_SLOW)
    ramp = ((torch.arange(pairs, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    mask = 1 - ramp
    scale = spec.rope_scaling_factor
    return (1 - mask) * plain / scale + mask * plain, 0.1 * math.log(scale) + 1


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the split-half pairs (j, j + d/2) of [B, T, heads, d] (§5)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype that norms and softmax compute in."""
    return torch.float64 if dtype == torch.float64 else torch.float32
