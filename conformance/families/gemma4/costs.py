"""What Gemma 4's KV cache costs, in bytes of BF16 (docs/gemma4.md §1)."""

from __future__ import annotations

from conformance.families.base import LOCAL
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["cache_bytes", "kv_bytes_per_token"]

_BF16_BYTES = 2


def kv_bytes_per_token(spec: Gemma4Spec, kind: str) -> int:
    """Bytes of K and V of one token in one layer of a kind: 4·Hkv·d. K and V differ on global layers, too."""
    kv_heads, head_dim = spec.heads(kind)
    return 2 * _BF16_BYTES * kv_heads * head_dim


def cache_bytes(spec: Gemma4Spec, context: int) -> int:
    """Bytes of one row's KV cache at N tokens, where local layers drop what lies beyond W.

    Layers that share keys and values keep none.
    """
    return sum(
        kv_bytes_per_token(spec, kind) * (min(context, spec.window_size) if kind == LOCAL else context)
        for layer, kind in enumerate(spec.layer_kinds)
        if spec.kv_layers[layer] == layer
    )
