"""PLaMo 3's parameter table: the names and shapes of a checkpoint (docs/plamo3.md §3)."""

from __future__ import annotations

from math import prod

from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["block_elements", "count_elements", "parameter_table"]


def parameter_table(spec: Plamo3Spec) -> dict[str, tuple[int, ...]]:
    """Parameter name → shape, in checkpoint order. Linear weights are [out, in]."""
    table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (spec.vocab_size, spec.hidden_size)}
    for layer in range(spec.num_hidden_layers):
        prefix = f"model.layers.layers.{layer}."
        table.update({prefix + name: shape for name, shape in _block(spec).items()})
    table["model.norm.weight"] = (spec.hidden_size,)
    if not spec.tie_word_embeddings:
        table["lm_head.weight"] = (spec.padded_vocab_size, spec.hidden_size)
    return table


def count_elements(spec: Plamo3Spec) -> int:
    """Number of stored elements of the whole checkpoint."""
    return sum(prod(shape) for shape in parameter_table(spec).values())


def block_elements(spec: Plamo3Spec) -> int:
    """Number of stored elements of one block."""
    return sum(prod(shape) for shape in _block(spec).values())


def _block(spec: Plamo3Spec) -> dict[str, tuple[int, ...]]:
    hidden, inner, head_dim = spec.hidden_size, spec.intermediate_size, spec.head_dim
    query_rows = spec.num_attention_heads * head_dim
    key_rows = spec.num_key_value_heads * head_dim
    return {
        "mixer.qkv_proj.weight": (query_rows + 2 * key_rows, hidden),
        "mixer.o_proj.weight": (hidden, query_rows),
        "mixer.q_norm.weight": (head_dim,),
        "mixer.k_norm.weight": (head_dim,),
        "mlp.gate_up_proj.weight": (2 * inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "pre_mixer_norm.weight": (hidden,),
        "post_mixer_norm.weight": (hidden,),
        "pre_mlp_norm.weight": (hidden,),
        "post_mlp_norm.weight": (hidden,),
    }
