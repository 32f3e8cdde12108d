"""Exact symmetries of PLaMo 3's parameters: relabelled models compute the same function.

Relabelling changes nothing but the order in which sums are taken, so the spread of the logits of
relabelled models is rounding noise of correct evaluations, measured on the very model at hand.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["relabel"]

_BLOCK = "model.layers.layers."
_RESIDUAL_NORMS = tuple(f"{site}_norm.weight" for site in ("pre_mixer", "post_mixer", "pre_mlp", "post_mlp"))
_RESIDUAL_INPUTS = ("mixer.qkv_proj.weight", "mlp.gate_up_proj.weight")
_RESIDUAL_OUTPUTS = ("mixer.o_proj.weight", "mlp.down_proj.weight")


def relabel(spec: Plamo3Spec, weights: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Permute residual channels, MLP channels and value channels, each consistently.

    Logits are unchanged in exact arithmetic: the vocabulary is not touched.
    """
    generator = torch.Generator().manual_seed(seed)

    def permutation(count: int) -> Tensor:
        return torch.randperm(count, generator=generator)

    residual = permutation(spec.hidden_size)
    inner = {layer: permutation(spec.intermediate_size) for layer in range(spec.num_hidden_layers)}
    value = {layer: permutation(spec.head_dim) for layer in range(spec.num_hidden_layers)}
    relabelled: dict[str, Tensor] = {}
    for name, w in weights.items():
        if name.startswith(_BLOCK):
            number, _, site = name.removeprefix(_BLOCK).partition(".")
            layer = int(number)
            mixed = _residual(site, w, residual)
            relabelled[name] = _within_block(spec, site, mixed, inner[layer], value[layer]).contiguous()
        else:
            relabelled[name] = w[..., residual].contiguous()
    return relabelled


def _residual(site: str, w: Tensor, residual: Tensor) -> Tensor:
    if site in _RESIDUAL_INPUTS:
        return w[:, residual]
    if site in _RESIDUAL_OUTPUTS or site in _RESIDUAL_NORMS:
        return w[residual]
    return w


def _within_block(spec: Plamo3Spec, site: str, w: Tensor, inner: Tensor, value: Tensor) -> Tensor:
    d = spec.head_dim
    if site == "mlp.gate_up_proj.weight":
        return w[torch.cat([inner, inner + spec.intermediate_size])]
    if site == "mlp.down_proj.weight":
        return w[:, inner]
    if site == "mixer.qkv_proj.weight":
        first = (spec.num_attention_heads + spec.num_key_value_heads) * d
        rows = [first + head * d + value for head in range(spec.num_key_value_heads)]
        return torch.cat([w[:first], w[torch.cat(rows)]])
    if site == "mixer.o_proj.weight":
        columns = [head * d + value for head in range(spec.num_attention_heads)]
        return w[:, torch.cat(columns)]
    return w
