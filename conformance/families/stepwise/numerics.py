"""Arithmetic of deviating models: matrix products, softmax over what is seen, and rounding on the way."""

from __future__ import annotations

import torch
from torch import Tensor

from conformance.families.stepwise.knobs import StepKnobs
from conformance.families.stepwise.view import View

__all__ = [
    "LEAN",
    "LEAN_OF_LOGITS",
    "cached",
    "capped",
    "leaning",
    "linear",
    "probabilities",
    "rounded",
    "unit",
    "wide",
    "with_neighbours",
]

# How far a number that is about to be rounded may be from what it is in exact arithmetic, as a part of
# its row's root mean square. Inside the model it is ROUNDING times the median of what FP32 runs show: one
# number that falls otherwise moves all that follow. Logits stand alone, so the largest error counts.
LEAN, LEAN_OF_LOGITS = 2.0**-18, 2.0**-15
_TF32_MANTISSA_BITS = 10
_ROUNDED_TO = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_CACHE_DTYPES = {**_ROUNDED_TO, "float8": torch.float8_e4m3fn}


def wide(dtype: torch.dtype) -> torch.dtype:
    """FP64 in FP64 runs, FP32 in all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def linear(x: Tensor, w: Tensor, knobs: StepKnobs) -> Tensor:
    """x [..., in] times w [out, in], transposed; the knob rounds x (w holds BF16 values)."""
    if knobs.matmul == "tf32":
        mantissa, exponent = torch.frexp(leaning(x, knobs))
        scale = 2.0 ** (_TF32_MANTISSA_BITS + 1)
        x = torch.ldexp(torch.round(mantissa * scale) / scale, exponent)
    elif knobs.matmul != "exact":
        x = rounded(x, _ROUNDED_TO[knobs.matmul], knobs)
    return x @ w.T


def rounded(x: Tensor, dtype: torch.dtype, knobs: StepKnobs) -> Tensor:
    """x [..., N] as a narrower dtype holds it."""
    return leaning(x, knobs).to(dtype).to(x.dtype)


def leaning(x: Tensor, knobs: StepKnobs, by: float = LEAN) -> Tensor:
    """x [..., N], moved by a little towards the side to which the run leans.

    Of what is rounded next, a few numbers (3 in 100 to FP16, 4 in 1,000 to BF16) fall on the other side of
    a border; no other changes.
    """
    if knobs.lean == "none":
        return x
    distance = by * x.pow(2).mean(-1, keepdim=True).sqrt()
    return x + distance if knobs.lean == "up" else x - distance


def unit(
    x: Tensor, eps: float, knobs: StepKnobs, run: torch.dtype, *, centred: bool, axes: tuple[int, ...]
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over `axes`, computed in FP32 or wider."""
    x = x.to(run if knobs.norm_width == "run" else wide(run))
    if centred:
        x = x - x.mean(axes, keepdim=True)
    square = x.pow(2).mean(axes, keepdim=True)
    return x / (
        torch.sqrt(square) + eps if knobs.eps_place == "outside the root" else torch.sqrt(square + eps)
    )


def capped(x: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(x / cap), or x."""
    return x if cap is None else cap * torch.tanh(x / cap)


def cached(x: Tensor, knobs: StepKnobs, run: torch.dtype) -> Tensor:
    """K or V as a cache of the knob's dtype gives it back."""
    return x if knobs.cache_dtype == "run" else rounded(x, _CACHE_DTYPES[knobs.cache_dtype], knobs).to(run)


def with_neighbours(x: Tensor, view: View) -> Tensor:
    """K or V [B, S, K, d], followed by the previous row's where the view says so."""
    return torch.cat([x, x.roll(1, dims=0)], dim=1) if view.neighbours else x


def probabilities(scores: Tensor, view: View, knobs: StepKnobs, run: torch.dtype) -> Tensor:
    """Softmax of scores [B, K, G, T, S] over the keys that are seen."""
    scores = scores.masked_fill(view.hidden, -torch.inf)
    if view.blind is not None:
        scores = scores.masked_fill(view.blind, 0.0)
    keys = scores.shape[-1]
    if view.unfilled:
        scores = torch.cat([scores, scores.new_zeros(*scores.shape[:-1], view.unfilled)], dim=-1)
    if knobs.softmax_width == "run":
        weight = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
        found = weight / weight.sum(dim=-1, keepdim=True)
    else:
        found = torch.softmax(scores.to(wide(run)), dim=-1)
    return found[..., :keys] if view.unfilled else found
