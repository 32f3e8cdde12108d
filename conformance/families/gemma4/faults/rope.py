"""Rotary embeddings of the deviating model (docs/gemma4.md §4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from conformance.families.base import GLOBAL
from conformance.families.gemma4.faults.knobs import Knobs
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.stepwise.numerics import wide

__all__ = ["Rotation", "rotate", "rotation"]

_DEFAULT_THETA = {True: 1_000_000.0, False: 10_000.0}  # global or not
_QUARTER = 0.25


@dataclass(frozen=True)
class Rotation:
    """How far each pair of a head's components turns.

    Attributes:
        cos: [B, T, 1, d/2].
        sin: [B, T, 1, d/2].
        order: [d] components: the first of every pair, then the second of every pair.
    """

    cos: Tensor
    sin: Tensor
    order: Tensor

    def last(self, columns: int) -> Rotation:
        """The same for the last columns alone."""
        return Rotation(self.cos[:, -columns:], self.sin[:, -columns:], self.order)


def rotation(
    spec: Gemma4Spec, knobs: Knobs, kind: str, positions: Tensor, run: torch.dtype
) -> Rotation | None:
    """The rotation at `positions` [B, T] of layers of one kind; None where nothing turns.

    Right: angle, cos and sin in FP32, cast to the run's dtype.
    """
    if not (knobs.global_rope if kind == GLOBAL else knobs.local_rope):
        return None
    computed = wide(run)
    places = positions.to(computed)
    frequencies = _frequencies(spec, knobs, kind).to(computed)
    if knobs.rope_rounding == "frequencies":
        frequencies = _as_bfloat16(frequencies)
    if knobs.rope_rounding == "positions":
        places = _as_bfloat16(places)
    angle = places[:, :, None, None] * frequencies
    if knobs.rope_rounding == "angles":
        angle = _as_bfloat16(angle)
    cos, sin = angle.cos(), angle.sin() * knobs.rope_sign
    if knobs.rope_rounding == "tables":
        cos, sin = _as_bfloat16(cos), _as_bfloat16(sin)
    cast = computed if "wide" in (knobs.rope_width, knobs.attention_width) else run
    return Rotation(cos.to(cast), sin.to(cast), _order(spec, knobs, kind))


def rotate(x: Tensor, angles: Rotation | None) -> Tensor:
    """Turn the pairs of components of [B, T, heads, d]."""
    if angles is None:
        return x
    first, second = x.to(angles.cos.dtype)[..., angles.order].chunk(2, dim=-1)
    cos, sin = angles.cos, angles.sin
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned[..., angles.order.argsort()]


@lru_cache(maxsize=512)
def _frequencies(spec: Gemma4Spec, knobs: Knobs, kind: str) -> Tensor:
    """Inverse frequencies [d/2] in float64."""
    _, d = spec.heads(kind)
    pairs = torch.arange(d // 2, dtype=torch.float64)
    theta = _theta(spec, knobs, kind)
    if kind != GLOBAL:
        turning = int(spec.partial_rotary_factor * d / 2) if knobs.local_partial else d // 2
        return torch.where(pairs < turning, theta ** (-2 * pairs / d), 0.0)
    turning = _turning(spec, knobs)
    divisor = {"head": d, "span": 2 * turning, "local head": spec.head_dim}[knobs.exponent]
    return torch.where(pairs < turning, theta ** (-2 * pairs / divisor), 0.0)


def _turning(spec: Gemma4Spec, knobs: Knobs) -> int:
    """How many pairs of a global head turn."""
    pairs = spec.global_head_dim // 2
    match knobs.turning:
        case "configured":
            return spec.rotated_pairs
        case "all":
            return pairs
        case "twice":
            return min(pairs, int(2 * spec.partial_rotary_factor * pairs))
        case "half":
            return int(spec.partial_rotary_factor * pairs / 2)
        case "a quarter of all":
            return int(_QUARTER * pairs)


@lru_cache(maxsize=512)
def _order(spec: Gemma4Spec, knobs: Knobs, kind: str) -> Tensor:
    """Components [d]: the first of every pair, then the second of every pair."""
    _, d = spec.heads(kind)
    components = torch.arange(d)
    if knobs.rope_pairs == "neighbours":
        return torch.cat([components[0::2], components[1::2]])
    if kind == GLOBAL and knobs.turning_pairs == "of the span":
        turning = _turning(spec, knobs)
        first, second, passing = torch.split(components, [turning, turning, d - 2 * turning])
        return torch.cat([first, passing[0::2], second, passing[1::2]])
    return components


def _theta(spec: Gemma4Spec, knobs: Knobs, kind: str) -> float:
    is_global = kind == GLOBAL
    rule = knobs.global_theta if is_global else knobs.local_theta
    if rule == "default":
        return _DEFAULT_THETA[is_global]
    return spec.rope_theta if is_global == (rule == "own") else spec.rope_local_theta


def _as_bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype)
