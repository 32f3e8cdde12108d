"""The oracle: Gemma 4's dense text decoder as docs/gemma4.md describes it, with nothing clever.

One forward pass over whole rows, no cache. Axes: B rows, T positions (S where they are keys), D
hidden, H query heads, K key/value heads, G query heads per key/value head, d head size, F inner. K and
d depend on the layer's kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["PUBLIC_CASTS", "Casts", "forward", "inverse_frequencies", "visible"]


@dataclass(frozen=True)
class Casts:
    """Where a low-precision run rounds. All choices are equal in exact arithmetic (§2, §3).

    Attributes:
        wide_attention: keep RoPE and attention in FP32 and round the result only.
        wide_scores: round what RoPE returns, but neither scores nor probabilities.
        wide_mlp: keep gelu(gate) * up in FP32 and round the product only.
        narrow_cap: round after each step of the softcap, instead of after the last.
    """

    wide_attention: bool = False
    wide_scores: bool = False
    wide_mlp: bool = False
    narrow_cap: bool = False


PUBLIC_CASTS = Casts()


def forward(
    spec: Gemma4Spec,
    weights: Mapping[str, Tensor],
    tokens: Tensor,  # [B, T] int64
    positions: Tensor,  # [B, T] int64
    segments: Tensor,  # [B, T] int64; -1 marks padding
    casts: Casts = PUBLIC_CASTS,
) -> Tensor:
    """Logits [B, T, V] in the dtype of `weights` (float64, float32 or bfloat16)."""
    embedding = weights["model.embed_tokens.weight"]
    factor = torch.tensor(math.sqrt(spec.hidden_size), dtype=torch.float64).to(embedding.dtype)
    h = embedding[tokens] * factor  # [B, T, D]
    shared: dict[int, tuple[Tensor, Tensor]] = {}  # layer → its keys and values, for layers that share (§7)
    for layer, kind in enumerate(spec.layer_kinds):
        prefix = f"model.layers.{layer}."
        block = {k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)}

        def norm(site: str, x: Tensor, block: dict[str, Tensor] = block) -> Tensor:
            return rms_norm(x, block[site + ".weight"], spec.rms_norm_eps)

        x = norm("input_layernorm", h)
        cos, sin = rotation(spec, kind, positions, x.dtype)
        source = spec.kv_layers[layer]
        if source == layer:
            shared[layer] = keys_and_values(spec, kind, block, x, cos, sin, casts)
        mixed = attention(spec, kind, block, x, shared[source], cos, sin, segments, casts)
        h = h + norm("post_attention_layernorm", mixed)
        h = h + norm("post_feedforward_layernorm", mlp(block, norm("pre_feedforward_layernorm", h), casts))
        h = h * block["layer_scalar"]  # the whole stream, what the residual carried included
    h = rms_norm(h, weights["model.norm.weight"], spec.rms_norm_eps)
    return softcap(h @ embedding.T, spec.final_logit_softcapping, casts)  # [B, T, V]


def rms_norm(x: Tensor, w: Tensor | None, eps: float) -> Tensor:
    """w * x / sqrt(mean(x^2) + eps) over the last axis; the product with w is wide, too (§2)."""
    wide = x.to(at_least_float32(x.dtype))
    unit = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (unit if w is None else unit * w.to(wide.dtype)).to(x.dtype)


def mlp(block: Mapping[str, Tensor], x: Tensor, casts: Casts) -> Tensor:
    """down(gelu(gate) * up), gelu in its tanh approximation (§2)."""
    gate, up = x @ block["mlp.gate_proj.weight"].T, x @ block["mlp.up_proj.weight"].T  # [B, T, F] each
    if casts.wide_mlp:
        gate, up = (t.to(at_least_float32(x.dtype)) for t in (gate, up))
    inner = torch.nn.functional.gelu(gate, approximate="tanh") * up
    return inner.to(x.dtype) @ block["mlp.down_proj.weight"].T


def softcap(logits: Tensor, cap: float, casts: Casts) -> Tensor:
    """cap * tanh(logits / cap) (§2)."""
    wide = logits if casts.narrow_cap else logits.to(at_least_float32(logits.dtype))
    return (torch.tanh(wide / cap) * cap).to(logits.dtype)


def keys_and_values(
    spec: Gemma4Spec,
    kind: str,
    block: Mapping[str, Tensor],
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    casts: Casts,
) -> tuple[Tensor, Tensor]:
    """K and V [B, S, K, d] as a cache holds them: K after norm and RoPE, V after its norm (§3)."""
    kv_heads, d = spec.heads(kind)
    shape = (*x.shape[:2], kv_heads, d)
    projected = (x @ block["self_attn.k_proj.weight"].T).view(shape)
    k = rms_norm(projected, block["self_attn.k_norm.weight"], spec.rms_norm_eps)
    if kind == LOCAL:
        projected = (x @ block["self_attn.v_proj.weight"].T).view(shape)
    v = rms_norm(projected, None, spec.rms_norm_eps)  # no gain; on global layers from K's projection
    return rotate(k, cos, sin, casts), v


def attention(
    spec: Gemma4Spec,
    kind: str,
    block: Mapping[str, Tensor],
    x: Tensor,
    kv: tuple[Tensor, Tensor],
    cos: Tensor,
    sin: Tensor,
    segments: Tensor,
    casts: Casts,
) -> Tensor:
    """Grouped-query attention with q/k norm before RoPE, and no scale (§3)."""
    batch, length, _ = x.shape
    kv_heads, d = spec.heads(kind)
    k, v = kv
    q = (x @ block["self_attn.q_proj.weight"].T).view(batch, length, -1, d)  # BTHd
    q = rotate(rms_norm(q, block["self_attn.q_norm.weight"], spec.rms_norm_eps), cos, sin, casts)
    q = q.view(batch, length, kv_heads, -1, d)  # BTKGd: consecutive query heads share one K/V head
    if casts.wide_attention or casts.wide_scores:
        q, k, v = (t.to(at_least_float32(x.dtype)) for t in (q, k, v))
    scores = torch.einsum("btkgd,bskd->bkgts", q, k)
    seen = visible(segments, spec.window_span if kind == LOCAL else None)  # [B, T, S]
    scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    # Padding rows see nothing; a uniform row keeps them finite, and nobody reads them.
    scores = torch.where(seen.any(-1)[:, None, None, :, None], scores, torch.zeros_like(scores))
    probabilities = torch.softmax(scores.to(at_least_float32(x.dtype)), dim=-1).to(v.dtype)
    mixed = torch.einsum("bkgts,bskd->btkgd", probabilities, v).to(x.dtype)
    return mixed.reshape(batch, length, -1) @ block["self_attn.o_proj.weight"].T


def visible(segments: Tensor, span: int | None) -> Tensor:
    """[B, T, S]: may query t see key s? Causal, own segment, no padding, within `span` keys (§3)."""
    length = segments.shape[1]
    index = torch.arange(length)
    distance = index[:, None] - index[None, :]  # [T, S]: of places in the row, not of position ids
    band = distance >= 0
    if span is not None:
        band = band & (distance <= span - 1)
    own = (segments[:, :, None] == segments[:, None, :]) & (segments >= 0)[:, None, :]
    return band & own


def rotation(spec: Gemma4Spec, kind: str, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [B, T, 1, d]: angles in FP32 (FP64 runs: FP64), cast (§4)."""
    wide = at_least_float32(dtype)
    angle = positions[:, :, None].to(wide) * inverse_frequencies(spec, kind).to(wide)  # [B, T, d/2]
    angle = torch.cat([angle, angle], dim=-1)[:, :, None, :]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def inverse_frequencies(spec: Gemma4Spec, kind: str) -> Tensor:
    """Inverse frequencies [d/2] in float64; 0 for the pairs of a global head that do not turn (§4)."""
    _, d = spec.heads(kind)
    theta = spec.rope_theta if kind == GLOBAL else spec.rope_local_theta
    pairs = torch.arange(d // 2, dtype=torch.float64)
    plain = theta ** (-2 * pairs / d)
    return torch.where(pairs < spec.rotated_pairs, plain, 0.0) if kind == GLOBAL else plain


def rotate(x: Tensor, cos: Tensor, sin: Tensor, casts: Casts) -> Tensor:
    """Rotate the split-half pairs (j, j + d/2) of [B, T, heads, d] (§4)."""
    if casts.wide_attention:
        x = x.to(at_least_float32(x.dtype))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype that norms and softmax compute in."""
    return torch.float64 if dtype == torch.float64 else torch.float32
