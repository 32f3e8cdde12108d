"""Attention of the deviating model (docs/gemma4.md §3, §7). Axes as in the oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4.faults.knobs import Grouping, HeadNorm, Knobs
from conformance.families.gemma4.faults.layers import Block, head_eps, rms_norm
from conformance.families.gemma4.faults.rope import Rotation, rotate
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.stepwise.cache import Log
from conformance.families.stepwise.numerics import (
    cached,
    capped,
    linear,
    probabilities,
    wide,
    with_neighbours,
)
from conformance.families.stepwise.view import View

__all__ = ["Step", "attention", "keys_and_values"]

_GEMMA_2_CAP = 50.0


@dataclass(frozen=True)
class Step:
    """What layers with one kind of heads and one kind of mask share in one forward step."""

    log: Log
    view: View
    query_angles: Rotation | None
    key_angles: Rotation | None


def keys_and_values(
    spec: Gemma4Spec, knobs: Knobs, block: Block, x: Tensor, angles: Rotation | None
) -> tuple[Tensor, Tensor]:
    """K and V [B, T, K, d] of new tokens: K after its norm and before RoPE, V after its norm.

    Args:
        spec: the configuration.
        knobs: what to do wrong.
        block: weights of the layer.
        x: [B, T, D], the layer's normalised input.
        angles: the rotation of K at these tokens.
    """
    kv_heads, d = spec.heads(block.kind)
    shape = (*x.shape[:2], kv_heads, d)
    k = projected = linear(x, block.k_proj, knobs).view(shape)
    if knobs.k_norm in ("before-rope", "all-heads"):
        k = _head_norm(spec, knobs, k, _gains(block, knobs)[1], knobs.k_offset, knobs.k_norm)
    if block.v_proj is not None:
        v, rule = linear(x, block.v_proj, knobs).view(shape), knobs.local_v_norm
    else:
        rule = knobs.global_v_norm
        match knobs.global_value:
            case "projection":
                v = projected
            case "normed key":
                v = k
            case "turned key":
                v = rotate(k, angles).to(x.dtype)
    if rule != "missing":
        axes = (-2, -1) if rule == "all-heads" else (-1,)
        v = rms_norm(v, None, head_eps(spec, knobs), knobs, x.dtype, axes=axes)
    return k, v


def attention(
    spec: Gemma4Spec,
    knobs: Knobs,
    layer: int,
    block: Block,
    x: Tensor,
    kv: tuple[Tensor, Tensor],
    step: Step,
    *,
    shares: bool,
) -> Tensor:
    """[B, T, D] to [B, T, D]; adds the new K and V to the log.

    Args:
        spec: the configuration.
        knobs: what to do wrong.
        layer: its number.
        block: its weights.
        x: its normalised input.
        kv: new keys and values, as `keys_and_values` gives them.
        step: mask, memory and rotation.
        shares: whether the keys and values are another layer's.
    """
    batch, length, _ = x.shape
    run, (kv_heads, d) = x.dtype, spec.heads(block.kind)
    q_gain, k_gain = _gains(block, knobs)
    q = linear(x, block.q_proj, knobs).view(batch, length, -1, d)  # BTHd
    if knobs.q_norm in ("before-rope", "all-heads"):
        q = _head_norm(spec, knobs, q, q_gain, knobs.q_offset, knobs.q_norm)
    k, v = step.log.extend(layer, *kv)  # BSKd
    q, k = rotate(q, step.query_angles), rotate(k, step.key_angles)
    if shares and knobs.sharing == "turned again":
        k = rotate(k, step.key_angles)
    if knobs.attention_width != "wide":
        q, k = q.to(run), k.to(run)
    if knobs.q_norm == "after-rope":
        q = _head_norm(spec, knobs, q, q_gain, knobs.q_offset, knobs.q_norm)
    if knobs.k_norm == "after-rope":
        k = _head_norm(spec, knobs, k, k_gain, knobs.k_offset, knobs.k_norm)
    k, v = cached(k, knobs, run), cached(v, knobs, run)
    if knobs.attention_width != "run":
        q, k, v = q.to(wide(run)), k.to(wide(run)), v.to(wide(run))
    view = step.view
    if shares and knobs.sharing == "of new tokens":
        view = _without_past(view, step.log.size - length)
    k, v = with_neighbours(k, view), with_neighbours(v, view)
    # Right: consecutive query heads share one K/V head.
    rule = knobs.global_grouping if block.kind == GLOBAL else knobs.local_grouping
    if rule != "repeat":
        heads = _taken_heads(spec, block.kind, rule)
        k, v, kv_heads = k[:, :, heads], v[:, :, heads], len(heads)
    q = q.view(batch, length, kv_heads, -1, d)  # BTKGd
    scores = torch.einsum("btkgd,bskd->bkgts", q, k) / _divisor(spec, knobs, block.kind)
    cap = {"none": None, "50": _GEMMA_2_CAP, "final": spec.final_logit_softcapping}[knobs.score_cap]
    weights = probabilities(capped(scores, cap), view, knobs, run).to(v.dtype)
    mixed = torch.einsum("bkgts,bskd->btkgd", weights, v).to(run)
    return linear(mixed.reshape(batch, length, -1), block.o_proj, knobs)


def _gains(block: Block, knobs: Knobs) -> tuple[Tensor, Tensor]:
    """The weights of the norms of Q and of K."""
    if knobs.head_gains == "exchanged":
        return block.k_norm, block.q_norm
    return block.q_norm, block.k_norm


def _head_norm(
    spec: Gemma4Spec, knobs: Knobs, x: Tensor, gain: Tensor, offset: float, rule: HeadNorm
) -> Tensor:
    axes = (-2, -1) if rule == "all-heads" else (-1,)
    eps, run = head_eps(spec, knobs), gain.dtype
    return rms_norm(x, gain, eps, knobs, run, offset=offset, centred=knobs.centred_heads, axes=axes)


def _without_past(view: View, past: int) -> View:
    """The view with the cached keys hidden."""
    cached = torch.arange(view.hidden.shape[-1]) < past
    return replace(view, hidden=view.hidden | cached)


def _taken_heads(spec: Gemma4Spec, kind: str, rule: Grouping) -> Tensor:
    """For every query head, the K/V head that it attends."""
    query_heads, (kv_heads, _) = torch.arange(spec.num_attention_heads), spec.heads(kind)
    if rule == "tile":
        return query_heads % kv_heads
    other, _ = spec.heads(LOCAL if kind == GLOBAL else GLOBAL)
    return (query_heads // (spec.num_attention_heads // other)).clamp(max=kv_heads - 1)


def _divisor(spec: Gemma4Spec, knobs: Knobs, kind: str) -> float:
    """What scores are divided by; right is 1."""
    own, other = (spec.heads(k)[1] for k in ((GLOBAL, LOCAL) if kind == GLOBAL else (LOCAL, GLOBAL)))
    match knobs.global_scale if kind == GLOBAL else knobs.local_scale:
        case "none":
            return 1.0
        case "own":
            return math.sqrt(own)
        case "other":
            return math.sqrt(other)
        case "hidden":
            return math.sqrt(spec.hidden_size / spec.num_attention_heads)
