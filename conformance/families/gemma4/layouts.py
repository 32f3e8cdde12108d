"""The ways to write a Gemma 4 model down (docs/gemma4.md §1, §5, §7)."""

from __future__ import annotations

from dataclasses import replace

from conformance.checkpoints.layout import Layout
from conformance.families.base import Variant
from conformance.families.gemma4.spec import Gemma4Spec, default_layer_types

__all__ = ["layouts"]


def layouts(spec: Gemma4Spec) -> tuple[Variant, ...]:
    """Shared keys and values, odd vocabularies, other thetas, shards, BF16, keys left out."""
    own = replace(spec, num_kv_shared_layers=0)
    # All optional keys at their defaults; the default pattern of 6 needs 7 layers to show its last one.
    plain = replace(
        own,
        rms_norm_eps=1e-6,
        num_hidden_layers=7,
        layer_types=default_layer_types(7),
        rope_local_theta=10_000.0,
        rope_theta=1_000_000.0,
        partial_rotary_factor=0.25,
    )
    # Two layers of each kind to take keys and values from, for the first one is wrong.
    shared = replace(
        own,
        num_hidden_layers=6,
        layer_types=("sliding_attention", "full_attention") * 3,
        num_kv_shared_layers=2,
    )
    return (
        Variant("all keys and values its own", own, Layout()),
        Variant("keys and values shared", shared, Layout()),
        Variant("odd vocabulary", replace(spec, vocab_size=spec.vocab_size // 16 * 16 + 5), Layout()),
        Variant("other thetas", replace(spec, rope_local_theta=4_000.0, rope_theta=400_000.0), Layout()),
        Variant("every pair turns", replace(spec, partial_rotary_factor=1.0), Layout()),
        Variant("three files", spec, Layout(shards=3)),
        Variant("stored in BF16", spec, Layout(dtype="bfloat16")),
        Variant("optional keys present", plain, Layout()),
        Variant("optional keys left out", plain, Layout(omit_defaults=True)),
    )
