"""Norms and the MLP of the deviating model (docs/plamo3.md §4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from conformance.families.plamo3.faults.knobs import Knobs
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.stepwise.numerics import linear, unit, wide

__all__ = [
    "Block",
    "gain",
    "mlp",
    "residual_eps",
    "residual_norm",
    "rms_norm",
]


@dataclass(frozen=True)
class Block:
    """The weights of one layer: linear ones [out, in], and the gains of norms, offset included."""

    qkv_proj: Tensor
    o_proj: Tensor
    q_norm: Tensor
    k_norm: Tensor
    gate_up_proj: Tensor
    down_proj: Tensor
    pre_mixer_norm: Tensor
    post_mixer_norm: Tensor
    pre_mlp_norm: Tensor
    post_mlp_norm: Tensor


def gain(w: Tensor, offset: float, knobs: Knobs) -> Tensor:
    """c + w, in the dtype of w."""
    return (w.to(wide(w.dtype)) if knobs.gain_width == "wide" else w) + offset


def rms_norm(
    x: Tensor,
    gain: Tensor,
    eps: float,
    knobs: Knobs,
    run: torch.dtype,
    *,
    centred: bool = False,
    axes: tuple[int, ...] = (-1,),
) -> Tensor:
    """gain * unit(x): cast to the run's dtype, then multiplied there."""
    normalised = unit(x, eps, knobs, run, centred=centred, axes=axes)
    if knobs.gain == "before the cast":
        return (normalised * gain.to(normalised.dtype)).to(run)
    return (normalised.to(run) * gain).to(run)


def residual_norm(spec: Plamo3Spec, knobs: Knobs, x: Tensor, gain: Tensor, run: torch.dtype) -> Tensor:
    """A norm over D."""
    return rms_norm(x, gain, residual_eps(spec, knobs), knobs, run, centred=knobs.centred_residual)


def residual_eps(spec: Plamo3Spec, knobs: Knobs) -> float:
    """The eps of norms over D."""
    return spec.rms_norm_eps if knobs.residual_eps is None else knobs.residual_eps


def mlp(block: Block, x: Tensor, knobs: Knobs) -> Tensor:
    """down(silu(gate) * up), gate and up stacked in one projection."""
    gate, up = linear(x, block.gate_up_proj, knobs).chunk(2, dim=-1)  # [B, T, F] each
    if knobs.mlp_width == "wide":
        gate, up = gate.to(wide(x.dtype)), up.to(wide(x.dtype))
    inner = (_activate(gate, knobs) * up).to(x.dtype)
    return linear(inner, block.down_proj, knobs)


def _activate(gate: Tensor, knobs: Knobs) -> Tensor:
    match knobs.activation:
        case "silu":
            return functional.silu(gate)
        case "gelu":
            return functional.gelu(gate)
        case "gelu-tanh":
            return functional.gelu(gate, approximate="tanh")
        case "quick-gelu":
            return gate * torch.sigmoid(1.702 * gate)
        case "relu":
            return functional.relu(gate)
