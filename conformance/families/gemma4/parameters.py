"""Gemma 4's parameter table: the names and shapes of a checkpoint (docs/gemma4.md §5)."""

from __future__ import annotations

from math import prod

from conformance.families.base import LOCAL
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["count_elements", "parameter_table"]


def parameter_table(spec: Gemma4Spec) -> dict[str, tuple[int, ...]]:
    """Parameter name → shape, in checkpoint order. Linear weights are [out, in]; the head is tied."""
    table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (spec.vocab_size, spec.hidden_size)}
    for layer in range(spec.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        table.update({prefix + name: shape for name, shape in _block(spec, layer).items()})
    table["model.norm.weight"] = (spec.hidden_size,)
    return table


def count_elements(spec: Gemma4Spec) -> int:
    """Number of stored elements of the whole checkpoint."""
    return sum(prod(shape) for shape in parameter_table(spec).values())


def _block(spec: Gemma4Spec, layer: int) -> dict[str, tuple[int, ...]]:
    hidden, inner, kind = spec.hidden_size, spec.intermediate_size, spec.layer_kinds[layer]
    kv_heads, head_dim = spec.heads(kind)
    query_rows, key_rows = spec.num_attention_heads * head_dim, kv_heads * head_dim
    block: dict[str, tuple[int, ...]] = {
        "layer_scalar": (1,),
        "self_attn.q_proj.weight": (query_rows, hidden),
        "self_attn.q_norm.weight": (head_dim,),
    }
    if spec.kv_layers[layer] == layer:
        block["self_attn.k_proj.weight"] = (key_rows, hidden)
        block["self_attn.k_norm.weight"] = (head_dim,)
        if kind == LOCAL:
            block["self_attn.v_proj.weight"] = (key_rows, hidden)
    return block | {
        "self_attn.o_proj.weight": (hidden, query_rows),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "pre_feedforward_layernorm.weight": (hidden,),
        "post_feedforward_layernorm.weight": (hidden,),
    }
