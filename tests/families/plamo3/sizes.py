"""The four sizes of docs/plamo3.md §2, and a tiny spec that tests change one key of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conformance.families.plamo3.spec import Plamo3Spec

# The architecture keys of 31B 2604, as its config.json has them (docs/plamo3.md §2).
CONFIG_31B: dict[str, Any] = {
    "vocab_size": 107520,
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "window_size": 2048,
    "sliding_window_pattern": 8,
    "rope_local_theta": 10000,
    "rope_theta": 1000000,
    "initial_context_length": 4096,
    "rope_scaling_factor": 256,
    "max_position_embeddings": 262144,
    "scale_embedding": False,
    "linear_type": "fp8",
}
SPEC_31B = Plamo3Spec.from_config(CONFIG_31B)
SIZES = {
    "610M": replace(
        SPEC_31B,
        hidden_size=1536,
        num_hidden_layers=16,
        intermediate_size=6144,
        num_attention_heads=16,
        num_key_value_heads=1,
        tie_word_embeddings=False,
    ),
    "2B": replace(
        SPEC_31B,
        hidden_size=2560,
        num_hidden_layers=24,
        intermediate_size=10240,
        num_attention_heads=24,
        num_key_value_heads=4,
    ),
    "8B": replace(
        SPEC_31B,
        hidden_size=4096,
        num_hidden_layers=32,
        intermediate_size=16384,
        num_attention_heads=32,
        num_key_value_heads=4,
    ),
    "31B": SPEC_31B,
}

TINY: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "intermediate_size": 56,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "window_size": 4,
    "sliding_window_pattern": 2,
    "max_position_embeddings": 4096,
}


def tiny(**changed: Any) -> Plamo3Spec:
    """A tiny 4k spec with local, global, local layers; some keys changed."""
    return Plamo3Spec(**{**TINY, **changed})


def tiny_2604(**changed: Any) -> Plamo3Spec:
    """The same with YaRN."""
    return tiny(**{"rope_scaling_factor": 16.0, "initial_context_length": 512, **changed})
