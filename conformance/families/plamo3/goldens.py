"""The models of PLaMo 3's goldens: one that tells every rule apart, and the published small one."""

from __future__ import annotations

from conformance.checkpoints.layout import Layout
from conformance.families.base import Variant
from conformance.families.plamo3.published import PUBLISHED
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["GOLDEN_MODELS"]

_TELLING = {
    "vocab_size": 120,
    "hidden_size": 80,
    "num_hidden_layers": 5,
    "intermediate_size": 136,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "window_size": 5,
    "sliding_window_pattern": 2,
}

GOLDEN_MODELS = {
    "2604": (
        Variant(
            "telling",
            Plamo3Spec(
                **_TELLING,  # type: ignore[arg-type]
                max_position_embeddings=65_536,
                initial_context_length=1024,
                rope_scaling_factor=16.0,
            ),
            Layout(),
        ),
        Variant("small", PUBLISHED["2604"].spec, Layout(recipe="fresh")),
    ),
    "4k": (
        Variant("telling", Plamo3Spec(**_TELLING, max_position_embeddings=4096), Layout()),  # type: ignore[arg-type]
        Variant("small", PUBLISHED["4k"].spec, Layout(recipe="fresh")),
    ),
}
