"""Rotary embeddings of the deviating model (docs/plamo3.md §5)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from conformance.families.base import GLOBAL
from conformance.families.plamo3.faults.knobs import Knobs
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.stepwise.numerics import wide

__all__ = ["Rotation", "rotate", "rotation"]

_DEFAULT_THETA = {True: 1_000_000.0, False: 10_000.0}  # global or not

# cos, and sin with the sign that its component's partner has: [B, T, 1, d] each.
Rotation = tuple[Tensor, Tensor]


def rotation(
    spec: Plamo3Spec, knobs: Knobs, kind: str, positions: Tensor, run: torch.dtype, *, keys: bool
) -> Rotation | None:
    """cos and signed sin at `positions` [B, T], for queries or for keys; None where nothing is rotated.

    Right: angle, cos and sin in FP32, cast to the run's dtype, then times the amplitude.
    """
    if not (knobs.global_rope if kind == GLOBAL else knobs.local_rope):
        return None
    frequencies = _frequencies(spec, knobs, kind)
    computed = wide(run)
    places = positions.to(computed)
    frequencies = frequencies.to(computed)
    if knobs.rope_rounding == "frequencies":
        frequencies = _as_bfloat16(frequencies)
    if knobs.rope_rounding == "positions":
        places = _as_bfloat16(places)
    angle = places[:, :, None, None] * frequencies  # [B, T, 1, d/2]
    if knobs.rope_rounding == "angles":
        angle = _as_bfloat16(angle)
    cos, sin = angle.cos(), angle.sin() * knobs.rope_sign
    if knobs.rope_rounding == "tables":
        cos, sin = _as_bfloat16(cos), _as_bfloat16(sin)
    of_cos, of_sin = _amplitudes(spec, knobs, kind, keys)
    cast = computed if "wide" in (knobs.rope_width, knobs.attention_width) else run
    if knobs.amplitude_width == "wide":
        cos, sin = (cos * of_cos).to(cast), (sin * of_sin).to(cast)
    else:
        cos, sin = cos.to(cast) * of_cos, sin.to(cast) * of_sin
    if knobs.rope_pairs == "neighbours":
        return cos.repeat_interleave(2, dim=-1), torch.stack([-sin, sin], dim=-1).flatten(-2)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def rotate(x: Tensor, angles: Rotation | None, knobs: Knobs) -> Tensor:
    """Rotate the pairs (j, j + d/2) of [B, T, heads, d]."""
    if angles is None:
        return x
    cos, sin = angles
    x = x.to(cos.dtype)
    if knobs.rope_pairs == "neighbours":
        return x * cos + torch.stack([x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2) * sin
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


@lru_cache(maxsize=512)
def _frequencies(spec: Plamo3Spec, knobs: Knobs, kind: str) -> Tensor:
    """Inverse frequencies [d/2] in float64."""
    pairs = spec.head_dim // 2
    theta = _theta(spec, knobs, kind)
    plain = theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    if not _has_yarn(spec, knobs, kind):
        return plain
    scaled = plain / _factor(spec, knobs)
    if knobs.yarn_blend != "ramp":
        return scaled if knobs.yarn_blend == "all scaled" else plain
    length = {
        "original": spec.initial_context_length,
        "extended": spec.max_position_embeddings,
        "scaled": spec.initial_context_length * spec.rope_scaling_factor,
    }[knobs.yarn_length]
    steps = spec.head_dim if knobs.yarn_range == "dimensions" else pairs
    low, high = (
        steps * math.log(length / (beta * 2 * math.pi)) / math.log(theta) for beta in knobs.yarn_betas
    )
    if knobs.yarn_range == "rounded":
        low, high = math.floor(low), math.ceil(high)
    kept = 1 - ((torch.arange(pairs, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * scaled + kept * plain


def _theta(spec: Plamo3Spec, knobs: Knobs, kind: str) -> float:
    is_global = kind == GLOBAL
    rule = knobs.global_theta if is_global else knobs.local_theta
    if rule == "default":
        return _DEFAULT_THETA[is_global]
    return spec.rope_theta if is_global == (rule == "own") else spec.rope_local_theta


def _has_yarn(spec: Plamo3Spec, knobs: Knobs, kind: str) -> bool:
    return spec.release == "2604" and (knobs.global_yarn if kind == GLOBAL else knobs.local_yarn)


def _factor(spec: Plamo3Spec, knobs: Knobs) -> float:
    if knobs.yarn_factor == "from lengths":
        return spec.max_position_embeddings / spec.initial_context_length
    return spec.rope_scaling_factor


def _amplitudes(spec: Plamo3Spec, knobs: Knobs, kind: str, keys: bool) -> tuple[float, float]:
    """What cos and sin are multiplied by."""
    extra = knobs.local_amplitude and kind != GLOBAL and spec.release == "2604"
    if not (_has_yarn(spec, knobs, kind) or extra):
        return 1.0, 1.0
    amplitude = 0.1 * math.log(_factor(spec, knobs)) + 1
    of_cos, of_sin = {
        "both": (amplitude, amplitude),
        "missing": (1.0, 1.0),
        "cos": (amplitude, 1.0),
        "sin": (1.0, amplitude),
        "twice": (amplitude**2, amplitude**2),
        "queries": (1.0, 1.0) if keys else (amplitude, amplitude),
    }[knobs.amplitude]
    return of_cos, of_sin


def _as_bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype)
