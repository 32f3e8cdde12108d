"""PLaMo 3 models on which faults are looked for."""

from __future__ import annotations

from typing import Any

from conformance.families.plamo3.spec import Plamo3Spec


def spec_of(release: str, **changes: Any) -> Plamo3Spec:
    """A tiny model of a release: a local layer, then a global one, W 4."""
    yarn = {"rope_scaling_factor": 16.0, "initial_context_length": 1024} if release == "2604" else {}
    sizes: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "intermediate_size": 56,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "window_size": 4,
        "sliding_window_pattern": 2,
        "max_position_embeddings": 262_144 if release == "2604" else 4096,
    }
    return Plamo3Spec(**{**sizes, **yarn, **changes})


# Between them, every condition on a model holds somewhere. Nine layers tell constant patterns apart.
SPECS = (
    spec_of("2604"),
    spec_of("4k", tie_word_embeddings=False, window_size=3),
    spec_of(
        "2604",
        num_hidden_layers=9,
        sliding_window_pattern=3,
        rope_theta=500_000.0,
        rope_local_theta=4000.0,
        rms_norm_eps=3e-6,
        window_size=3,
    ),
)
