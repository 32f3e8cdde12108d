"""Exact symmetries of Gemma 4's parameters: relabelled models compute the same function.

Relabelling changes nothing but the order in which sums are taken, so the spread of the logits of
relabelled models is rounding noise of correct evaluations, measured on the very model at hand.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["relabel"]

_BLOCK = "model.layers."
_RESIDUAL_INPUTS = (
    *(f"self_attn.{name}_proj.weight" for name in ("q", "k", "v")),
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
)
_RESIDUAL_OUTPUTS = (
    "self_attn.o_proj.weight",
    "mlp.down_proj.weight",
    *(
        f"{site}_layernorm.weight"
        for site in ("input", "post_attention", "pre_feedforward", "post_feedforward")
    ),
)


def relabel(spec: Gemma4Spec, weights: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Permute residual channels and MLP channels, each consistently.

    Logits are unchanged in exact arithmetic: the vocabulary is not touched. The components of heads keep
    their places: RoPE numbers them, and so do deviating models in ways that the configuration does not
    tell (which pairs turn, whose values a layer takes).
    """
    generator = torch.Generator().manual_seed(seed)
    residual = torch.randperm(spec.hidden_size, generator=generator)
    inner = [torch.randperm(spec.intermediate_size, generator=generator) for _ in spec.layer_kinds]
    relabelled: dict[str, Tensor] = {}
    for name, w in weights.items():
        if name.startswith(_BLOCK):
            number, _, site = name.removeprefix(_BLOCK).partition(".")
            relabelled[name] = _mlp(site, _residual(site, w, residual), inner[int(number)]).contiguous()
        else:
            relabelled[name] = w[..., residual].contiguous()
    return relabelled


def _residual(site: str, w: Tensor, residual: Tensor) -> Tensor:
    if site in _RESIDUAL_INPUTS:
        return w[:, residual]
    return w[residual] if site in _RESIDUAL_OUTPUTS else w


def _mlp(site: str, w: Tensor, inner: Tensor) -> Tensor:
    if site in ("mlp.gate_proj.weight", "mlp.up_proj.weight"):
        return w[inner]
    return w[:, inner] if site == "mlp.down_proj.weight" else w
