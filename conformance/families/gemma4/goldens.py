"""The models of Gemma 4's goldens: two that tell every rule apart, the second with shared keys and values."""

from __future__ import annotations

from typing import Any

from conformance.checkpoints.layout import Layout
from conformance.families.base import Variant
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["GOLDEN_MODELS"]


def _telling(**changed: Any) -> Gemma4Spec:
    return Gemma4Spec(
        vocab_size=121,
        hidden_size=80,
        num_hidden_layers=5,
        intermediate_size=136,
        num_attention_heads=6,
        num_key_value_heads=3,
        num_global_key_value_heads=2,
        head_dim=32,
        global_head_dim=48,
        window_size=5,
        max_position_embeddings=4096,
        layer_types=(
            "sliding_attention",
            "full_attention",
            "sliding_attention",
            "sliding_attention",
            "full_attention",
        ),
        final_logit_softcapping=30.0,
        **changed,
    )


GOLDEN_MODELS = {
    "gemma-4": (
        Variant("telling", _telling(), Layout()),
        Variant("sharing", _telling(num_kv_shared_layers=2), Layout()),
    ),
}
