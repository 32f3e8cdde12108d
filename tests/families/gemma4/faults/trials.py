"""Gemma 4 models on which faults are looked for."""

from __future__ import annotations

from typing import Any

from conformance.families.gemma4.spec import Gemma4Spec


def spec_of(kinds: str, **changes: Any) -> Gemma4Spec:
    """A tiny model with layers of the kinds that the letters `l` and `g` name, W 4."""
    sizes: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 48,
        "num_hidden_layers": len(kinds),
        "intermediate_size": 56,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "num_global_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 32,
        "window_size": 4,
        "max_position_embeddings": 4096,
        "layer_types": tuple("full_attention" if kind == "g" else "sliding_attention" for kind in kinds),
        "final_logit_softcapping": 30.0,
    }
    return Gemma4Spec(**{**sizes, **changes})


# Between them, every condition on a model holds somewhere, and no value is a default in all of them. A model
# of a local and a global layer would not do: it is made to look at the local one alone.
SPECS = (
    spec_of("llg"),
    spec_of(
        "lglllg",
        window_size=3,
        rms_norm_eps=1e-5,
        rope_local_theta=4_000.0,
        rope_theta=400_000.0,
        partial_rotary_factor=0.5,
        final_logit_softcapping=25.0,
        num_kv_shared_layers=2,
    ),
    spec_of("lglg", num_kv_shared_layers=1),
)
