"""Attention of the deviating model (docs/plamo3.md §4 to §6). Axes as in the oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.plamo3.faults.knobs import HeadNorm, Knobs
from conformance.families.plamo3.faults.layers import Block, rms_norm
from conformance.families.plamo3.faults.rope import Rotation, rotate
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.stepwise.cache import Log
from conformance.families.stepwise.numerics import (
    cached,
    capped,
    linear,
    probabilities,
    unit,
    wide,
    with_neighbours,
)
from conformance.families.stepwise.view import View

__all__ = ["Step", "attention"]


@dataclass(frozen=True)
class Step:
    """What the layers of one kind share in one forward step."""

    log: Log
    view: View
    query_angles: Rotation | None
    key_angles: Rotation | None


def attention(spec: Plamo3Spec, knobs: Knobs, layer: int, block: Block, x: Tensor, step: Step) -> Tensor:
    """[B, T, D] to [B, T, D]; adds the new K and V to the log."""
    batch, length, _ = x.shape
    run, d = x.dtype, spec.head_dim
    heads, kv_heads, groups = spec.num_attention_heads, spec.num_key_value_heads, spec.groups
    qkv = linear(x, block.qkv_proj, knobs).view(batch, length, -1, d)
    q, k, v = torch.split(qkv, [heads, kv_heads, kv_heads], dim=2)  # BTHd BTKd BTKd
    q_gain, k_gain = block.q_norm, block.k_norm
    if knobs.head_gains == "exchanged":
        q_gain, k_gain = k_gain, q_gain

    def normed(x: Tensor, gain: Tensor, rule: HeadNorm) -> Tensor:
        axes = (-2, -1) if rule == "all-heads" else (-1,)
        return rms_norm(x, gain, _head_eps(spec, knobs), knobs, run, centred=knobs.centred_heads, axes=axes)

    if knobs.q_norm in ("before-rope", "all-heads"):
        q = normed(q, q_gain, knobs.q_norm)
    if knobs.k_norm in ("before-rope", "all-heads"):
        k = normed(k, k_gain, knobs.k_norm)
    if knobs.v_norm:
        v = unit(v, _head_eps(spec, knobs), knobs, run, centred=False, axes=(-1,)).to(run)
    k, v = step.log.extend(layer, k, v)  # BSKd
    q, k = rotate(q, step.query_angles, knobs), rotate(k, step.key_angles, knobs)
    if knobs.attention_width == "run":
        q, k = q.to(run), k.to(run)
    if knobs.q_norm == "after-rope":
        q = normed(q, q_gain, knobs.q_norm)
    if knobs.k_norm == "after-rope":
        k = normed(k, k_gain, knobs.k_norm)
    k, v = cached(k, knobs, run), cached(v, knobs, run)
    if knobs.attention_width == "wide":
        q, k, v = q.to(wide(run)), k.to(wide(run)), v.to(wide(run))
    k, v = with_neighbours(k, step.view), with_neighbours(v, step.view)
    # Right: consecutive query heads share one K/V head. Tiled: every Kth does.
    tiled = knobs.grouping == "tile"
    q = (
        q.view(batch, length, groups, kv_heads, d).transpose(2, 3)
        if tiled
        else q.view(batch, length, kv_heads, groups, d)
    )
    scores = torch.einsum("btkgd,bskd->bkgts", q, k) / _divisor(spec, knobs)
    weights = probabilities(capped(scores, knobs.score_cap), step.view, knobs, run).to(v.dtype)
    mixed = torch.einsum("bkgts,bskd->btkgd", weights, v).to(run)
    if tiled:
        mixed = mixed.transpose(2, 3)
    return linear(mixed.reshape(batch, length, -1), block.o_proj, knobs)


def _head_eps(spec: Plamo3Spec, knobs: Knobs) -> float:
    return spec.rms_norm_eps if knobs.head_eps is None else knobs.head_eps


def _divisor(spec: Plamo3Spec, knobs: Knobs) -> float:
    match knobs.scale:
        case "head":
            return math.sqrt(spec.head_dim)
        case "hidden":
            return math.sqrt(spec.hidden_size / spec.num_attention_heads)
        case "none":
            return 1.0
        case "squared":
            return float(spec.head_dim)
