"""Exact symmetries of Gemma 4's parameters: relabelled models compute the same function.

Relabelling changes nothing but the order in which sums are taken, so the spread of the logits of
relabelled models is rounding noise of correct evaluations, measured on the very model at hand.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
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
    """Permute residual channels, MLP channels and head components, each consistently.

    Logits are unchanged in exact arithmetic: the vocabulary is not touched. Values of local layers have
    components of their own to permute. On global layers they come from K's projection, whose components
    RoPE pairs and numbers; those of pairs that do not turn may be exchanged among each other. Layers that
    share keys and values take part in the permutation of the layer that they take them from.
    """
    generator = torch.Generator().manual_seed(seed)
    residual = torch.randperm(spec.hidden_size, generator=generator)
    inner = [torch.randperm(spec.intermediate_size, generator=generator) for _ in spec.layer_kinds]
    value = [_value_components(spec, kind, generator) for kind in spec.layer_kinds]
    relabelled: dict[str, Tensor] = {}
    for name, w in weights.items():
        if name.startswith(_BLOCK):
            number, _, site = name.removeprefix(_BLOCK).partition(".")
            layer = int(number)
            mixed = _residual(site, w, residual)
            mixed = _mlp(site, mixed, inner[layer])
            mixed = _head(spec, spec.layer_kinds[layer], site, mixed, value[spec.kv_layers[layer]])
            relabelled[name] = mixed.contiguous()
        else:
            relabelled[name] = w[..., residual].contiguous()
    return relabelled


def _value_components(spec: Gemma4Spec, kind: str, generator: torch.Generator) -> Tensor:
    """A permutation of a head's components that its values allow."""
    _, d = spec.heads(kind)
    if kind == LOCAL:
        return torch.randperm(d, generator=generator)
    # Components of pairs that do not turn go anywhere among each other; those that turn stay.
    pair = torch.arange(d) % (d // 2)
    passing = torch.nonzero(pair >= spec.rotated_pairs).flatten()
    components = torch.arange(d)
    components[passing] = passing[torch.randperm(len(passing), generator=generator)]
    return components


def _residual(site: str, w: Tensor, residual: Tensor) -> Tensor:
    if site in _RESIDUAL_INPUTS:
        return w[:, residual]
    return w[residual] if site in _RESIDUAL_OUTPUTS else w


def _mlp(site: str, w: Tensor, inner: Tensor) -> Tensor:
    if site in ("mlp.gate_proj.weight", "mlp.up_proj.weight"):
        return w[inner]
    return w[:, inner] if site == "mlp.down_proj.weight" else w


def _head(spec: Gemma4Spec, kind: str, site: str, w: Tensor, value: Tensor) -> Tensor:
    """The components of a head of one tensor, permuted where they are values, or K of which V is made."""
    kv_heads, _ = spec.heads(kind)
    if site == "self_attn.o_proj.weight":
        return w[:, _everywhere(value, spec.num_attention_heads)]
    if kind == LOCAL:
        return w[_everywhere(value, kv_heads)] if site == "self_attn.v_proj.weight" else w
    assert kind == GLOBAL
    match site:
        case "self_attn.k_proj.weight":
            return w[_everywhere(value, kv_heads)]
        case "self_attn.q_proj.weight":
            return w[_everywhere(value, spec.num_attention_heads)]
        case "self_attn.q_norm.weight" | "self_attn.k_norm.weight":
            return w[value]
    return w


def _everywhere(components: Tensor, heads: int) -> Tensor:
    """One head's permutation, for the rows of `heads` heads."""
    return torch.cat([head * len(components) + components for head in range(heads)])
