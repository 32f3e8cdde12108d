"""Figures that were published for small models on the releases' own code (docs/plamo3.md §9)."""

from __future__ import annotations

from typing import Any

from conformance.families.base import Published
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["PUBLISHED"]

_WINDOW = 4


def _small(**release: Any) -> Plamo3Spec:
    """8 layers, D 48, d 16, W 4; what the published description leaves open is chosen here."""
    return Plamo3Spec(
        vocab_size=128,
        hidden_size=48,
        num_hidden_layers=8,
        intermediate_size=136,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        window_size=_WINDOW,
        **release,
    )


PUBLISHED = {
    "2604": Published(
        spec=_small(max_position_embeddings=262_144, rope_scaling_factor=256.0),
        width=12,
        decode_error=2.7e-7,
        split=(3, 6, 3),
        split_error=2.1e-7,
        training={_WINDOW: False, _WINDOW + 1: True, _WINDOW + 2: False},
        training_difference=0.01,
        section="docs/plamo3.md §9",
    ),
    "4k": Published(
        spec=_small(max_position_embeddings=4096),
        width=12,
        decode_error=3.3e-7,
        split=(3, 6, 3),
        split_error=2.8e-7,
        training={_WINDOW: False, _WINDOW + 1: False, _WINDOW + 2: False},
        training_difference=0.01,
        section="docs/plamo3.md §9",
    ),
}
