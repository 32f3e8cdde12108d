"""The ways to write a PLaMo 3 model down (docs/plamo3.md §2, §3)."""

from __future__ import annotations

from dataclasses import replace

from conformance.checkpoints.layout import Layout
from conformance.families.base import Variant
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["layouts"]


def layouts(spec: Plamo3Spec) -> tuple[Variant, ...]:
    """Head tied and untied, odd vocabularies, other thetas, shards, BF16, keys left out."""
    tied, untied = replace(spec, tie_word_embeddings=True), replace(spec, tie_word_embeddings=False)
    odd = replace(untied, vocab_size=spec.vocab_size // 16 * 16 + 5)
    # All optional keys at their defaults; the default pattern of 8 needs 8 layers.
    plain = replace(
        tied,
        rms_norm_eps=1e-6,
        sliding_window_pattern=8,
        num_hidden_layers=8,
        initial_context_length=4096,
        rope_local_theta=10_000.0,
        rope_theta=1_000_000.0,
    )
    return (
        Variant("tied", tied, Layout()),
        Variant("untied", replace(untied, vocab_size=128), Layout()),
        Variant("untied, odd vocabulary", odd, Layout()),
        Variant("tied, odd vocabulary", replace(odd, tie_word_embeddings=True), Layout()),
        Variant("other thetas", replace(spec, rope_local_theta=4_000.0, rope_theta=400_000.0), Layout()),
        Variant("three files", spec, Layout(shards=3)),
        Variant("stored in BF16", spec, Layout(dtype="bfloat16")),
        Variant("optional keys present", plain, Layout()),
        Variant("optional keys left out", plain, Layout(omit_defaults=True)),
    )
