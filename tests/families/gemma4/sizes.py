"""31B of docs/gemma4.md §1, and tiny specs that tests change one field of."""

from __future__ import annotations

from typing import Any

from conformance.families.gemma4.spec import Gemma4Spec

LOCAL_TYPE, GLOBAL_TYPE = "sliding_attention", "full_attention"
# The architecture keys of 31B, as docs/gemma4.md §1 has them.
CONFIG_31B: dict[str, Any] = {
    "vocab_size": 262144,
    "hidden_size": 5376,
    "num_hidden_layers": 60,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "num_global_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 1024,
    "max_position_embeddings": 262144,
    "layer_types": [GLOBAL_TYPE if (i + 1) % 6 == 0 else LOCAL_TYPE for i in range(60)],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 1000000.0,
            "partial_rotary_factor": 0.25,
        },
    },
    "final_logit_softcapping": 30.0,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "use_bidirectional_attention": "vision",
}
SPEC_31B = Gemma4Spec.from_config(CONFIG_31B)

TINY: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "intermediate_size": 56,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "num_global_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 24,
    "window_size": 4,
    "max_position_embeddings": 4096,
    "layer_types": (LOCAL_TYPE, GLOBAL_TYPE, LOCAL_TYPE, GLOBAL_TYPE),
    "final_logit_softcapping": 30.0,
}


def tiny(**changed: Any) -> Gemma4Spec:
    """A tiny spec of local, global, local, global layers; some fields changed."""
    return Gemma4Spec(**{**TINY, **changed})


def tiny_sharing(**changed: Any) -> Gemma4Spec:
    """The same, its last two layers attending the keys and values of the first two."""
    return tiny(num_kv_shared_layers=2, **changed)
