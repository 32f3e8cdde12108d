"""Norms, the MLP and the softcap of the deviating model (docs/gemma4.md §2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from conformance.families.gemma4.faults.knobs import Knobs
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.stepwise.numerics import (
    LEAN_OF_LOGITS,
    capped,
    leaning,
    linear,
    rounded,
    unit,
    wide,
)

__all__ = ["Block", "head_eps", "mlp", "overwritten", "residual_norm", "rms_norm", "softcapped"]

_DEFAULT_CAP = 30.0


@dataclass(frozen=True)
class Block:
    """The weights of one layer: linear ones [out, in], gains of norms, and the layer scalar.

    What makes keys and values is that of the layer that they are taken from. Global layers have no v_proj.
    """

    kind: str
    q_proj: Tensor
    k_proj: Tensor
    v_proj: Tensor | None
    o_proj: Tensor
    q_norm: Tensor
    k_norm: Tensor
    gate_proj: Tensor
    up_proj: Tensor
    down_proj: Tensor
    input_norm: Tensor
    post_attention_norm: Tensor
    pre_feedforward_norm: Tensor
    post_feedforward_norm: Tensor
    layer_scalar: Tensor


def rms_norm(
    x: Tensor,
    gain: Tensor | None,
    eps: float,
    knobs: Knobs,
    run: torch.dtype,
    *,
    offset: float = 0.0,
    centred: bool = False,
    axes: tuple[int, ...] = (-1,),
) -> Tensor:
    """(gain + offset) * x / sqrt(mean(x^2) + eps) over `axes`: multiplied in FP32, cast last."""
    normalised = unit(x, eps, knobs, run, centred=centred, axes=axes)
    if gain is None:
        return normalised.to(run)
    if knobs.gain == "after the cast":
        return normalised.to(run) * (gain + offset)
    return (normalised * (gain.to(normalised.dtype) + offset)).to(run)


def residual_norm(
    spec: Gemma4Spec, knobs: Knobs, x: Tensor, gain: Tensor, offset: float, run: torch.dtype
) -> Tensor:
    """A norm over D."""
    return rms_norm(
        x, gain, _residual_eps(spec, knobs), knobs, run, offset=offset, centred=knobs.centred_residual
    )


def overwritten(spec: Gemma4Spec, knobs: Knobs, x: Tensor) -> Tensor:
    """The residual after an in-place norm on its own storage: an up-cast of FP32 to FP32 copies nothing."""
    if x.dtype == torch.bfloat16:
        return x
    eps = _residual_eps(spec, knobs)
    return unit(x, eps, knobs, x.dtype, centred=knobs.centred_residual, axes=(-1,))


def head_eps(spec: Gemma4Spec, knobs: Knobs) -> float:
    """The eps of the norms of Q, K and V."""
    return spec.rms_norm_eps if knobs.head_eps is None else knobs.head_eps


def mlp(block: Block, x: Tensor, knobs: Knobs) -> Tensor:
    """down(gelu(gate) * up)."""
    gate, up = linear(x, block.gate_proj, knobs), linear(x, block.up_proj, knobs)  # [B, T, F] each
    if knobs.mlp_width == "wide":
        gate, up = gate.to(wide(x.dtype)), up.to(wide(x.dtype))
    return linear((_activate(gate, knobs) * up).to(x.dtype), block.down_proj, knobs)


def softcapped(spec: Gemma4Spec, logits: Tensor, knobs: Knobs) -> Tensor:
    """c * tanh(logits / c), computed in FP32 and cast last."""
    run, cap = logits.dtype, spec.final_logit_softcapping
    if knobs.softcap_width == "bfloat16":
        logits = leaning(logits, knobs, LEAN_OF_LOGITS).to(torch.bfloat16)
    elif knobs.softcap_width == "wide":
        logits = logits.to(wide(run))
    match knobs.softcap:
        case "configured":
            logits = capped(logits, cap)
        case "30":
            logits = capped(logits, _DEFAULT_CAP)
        case "twice":
            logits = capped(capped(logits, cap), cap)
        case "clamped":
            logits = logits.clamp(-cap, cap)
        case "missing":
            pass
    return logits.to(run)


def _residual_eps(spec: Gemma4Spec, knobs: Knobs) -> float:
    return spec.rms_norm_eps if knobs.residual_eps is None else knobs.residual_eps


def _activate(gate: Tensor, knobs: Knobs) -> Tensor:
    match knobs.activation:
        case "gelu-tanh":
            return functional.gelu(gate, approximate="tanh")
        case "gelu":
            return functional.gelu(gate)
        case "silu":
            return functional.silu(gate)
        case "quick-gelu":
            return gate * torch.sigmoid(1.702 * gate)
        case "relu":
            return functional.relu(gate)
        case "gelu-tanh-half":
            argument = rounded(gate, torch.float16, knobs).to(torch.float32)
            return functional.gelu(argument, approximate="tanh").to(torch.float16).to(gate.dtype)
