"""PLaMo 3 as GGUF: what llama.cpp's converter for this family makes of a checkpoint (docs/plamo3.md §2, §3).

GGUF has no key for the window convention, and none for the ends of YaRN's ramp being exact: both releases
are written alike, and what an engine makes of that is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["ARCHITECTURE", "metadata", "tensors"]

ARCHITECTURE = "plamo3"

# Stored tensor of a block → its name in GGUF, and the offset that GGUF's gain includes (docs/plamo3.md §4).
_BLOCK: Mapping[str, tuple[str, float]] = {
    "pre_mixer_norm.weight": ("attn_norm.weight", 1.0),
    "mixer.qkv_proj.weight": ("attn_qkv.weight", 0.0),
    "mixer.q_norm.weight": ("attn_q_norm.weight", 1.0),
    "mixer.k_norm.weight": ("attn_k_norm.weight", 1.0),
    "mixer.o_proj.weight": ("attn_output.weight", 0.0),
    "post_mixer_norm.weight": ("post_attention_norm", 1.0 / 5),
    "pre_mlp_norm.weight": ("ffn_norm.weight", 1.0),
    "mlp.gate_up_proj.weight": ("ffn_up.weight", 0.0),
    "mlp.down_proj.weight": ("ffn_down.weight", 0.0),
    "post_mlp_norm.weight": ("post_ffw_norm", 1.0 / 5**1.5),
}
_OTHERS: Mapping[str, tuple[str, float]] = {
    "model.embed_tokens.weight": ("token_embd.weight", 0.0),
    "model.norm.weight": ("output_norm.weight", 1.0),
    "lm_head.weight": ("output.weight", 0.0),
}


def metadata(spec: Plamo3Spec) -> dict[str, Any]:
    """GGUF key → value: whole numbers, floats and text."""
    values: dict[str, Any] = {
        "vocab_size": spec.vocab_size,
        "context_length": spec.max_position_embeddings,
        "embedding_length": spec.hidden_size,
        "block_count": spec.num_hidden_layers,
        "feed_forward_length": spec.intermediate_size,
        "attention.head_count": spec.num_attention_heads,
        "attention.head_count_kv": spec.num_key_value_heads,
        "attention.key_length": spec.head_dim,
        "attention.value_length": spec.head_dim,
        "attention.layer_norm_rms_epsilon": spec.rms_norm_eps,
        "attention.sliding_window": spec.window_size,
        "attention.sliding_window_pattern": spec.sliding_window_pattern,
        "rope.dimension_count": spec.head_dim,
        "rope.freq_base": spec.rope_theta,
        "rope.freq_base_swa": spec.rope_local_theta,
    }
    if spec.release == "2604":
        values |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": spec.rope_scaling_factor,
            "rope.scaling.original_context_length": spec.initial_context_length,
            "rope.scaling.yarn_beta_fast": 32.0,
            "rope.scaling.yarn_beta_slow": 1.0,
        }
    return {f"{ARCHITECTURE}.{key}": value for key, value in values.items()}


def tensors(spec: Plamo3Spec, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """GGUF name → float32 array, norm gains with their offsets.

    Args:
        spec: the configuration.
        stored: parameter name → float32 array, as in the checkpoint. A padded head stays padded.
    """
    named = {name: _OTHERS[name] for name in _OTHERS if name in stored}
    for layer in range(spec.num_hidden_layers):
        named |= {
            f"model.layers.layers.{layer}.{name}": (f"blk.{layer}.{short}", offset)
            for name, (short, offset) in _BLOCK.items()
        }
    return {
        short: np.asarray(stored[name] + offset, np.float32) if offset else stored[name]
        for name, (short, offset) in named.items()
    }
