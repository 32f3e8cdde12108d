"""Gemma 4 as GGUF: what llama.cpp's converter for this family makes of a checkpoint (docs/gemma4.md §1, §5).

GGUF has no key for the share of pairs that turn on global layers: it is written as divisors of the
frequencies, so large for pairs that pass that their angle vanishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.families.base import LOCAL
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["ARCHITECTURE", "metadata", "tensors"]

ARCHITECTURE = "gemma4"

# Stored tensor of a block → its name in GGUF.
_BLOCK: Mapping[str, str] = {
    "layer_scalar": "layer_output_scale.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}
_OTHERS: Mapping[str, str] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
}
_PASSING = 1e30


def metadata(spec: Gemma4Spec) -> dict[str, Any]:
    """GGUF key → value: whole numbers, floats, and lists with an entry for each layer."""
    values: dict[str, Any] = {
        "vocab_size": spec.vocab_size,
        "context_length": spec.max_position_embeddings,
        "embedding_length": spec.hidden_size,
        "embedding_length_per_layer_input": 0,
        "block_count": spec.num_hidden_layers,
        "feed_forward_length": spec.intermediate_size,
        "attention.head_count": spec.num_attention_heads,
        "attention.head_count_kv": [spec.heads(kind)[0] for kind in spec.layer_kinds],
        "attention.key_length": spec.global_head_dim,
        "attention.value_length": spec.global_head_dim,
        "attention.key_length_swa": spec.head_dim,
        "attention.value_length_swa": spec.head_dim,
        "attention.layer_norm_rms_epsilon": spec.rms_norm_eps,
        "attention.sliding_window": spec.window_size,
        "attention.sliding_window_pattern": [kind == LOCAL for kind in spec.layer_kinds],
        "attention.shared_kv_layers": spec.num_kv_shared_layers,
        "rope.dimension_count": spec.global_head_dim,
        "rope.dimension_count_swa": spec.head_dim,
        "rope.freq_base": spec.rope_theta,
        "rope.freq_base_swa": spec.rope_local_theta,
        "final_logit_softcapping": spec.final_logit_softcapping,
    }
    return {f"{ARCHITECTURE}.{key}": value for key, value in values.items()}


def tensors(spec: Gemma4Spec, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """GGUF name → float32 array: the stored ones, and the divisors of global layers' frequencies.

    Args:
        spec: the configuration.
        stored: parameter name → float32 array, as in the checkpoint.
    """
    named = dict(_OTHERS)
    for layer in range(spec.num_hidden_layers):
        named |= {f"model.layers.{layer}.{name}": f"blk.{layer}.{short}" for name, short in _BLOCK.items()}
    renamed = {short: stored[name] for name, short in named.items() if name in stored}
    divisors = np.full(spec.global_head_dim // 2, _PASSING, np.float32)
    divisors[: spec.rotated_pairs] = 1.0
    return {**renamed, "rope_freqs.weight": divisors}
