"""What a decode step of PLaMo 3 costs: floating-point operations, and bytes of weights and cache.

A decode step feeds one token to each of B rows whose contexts hold N tokens. Bytes are those of BF16, FLOPs
count a multiplication and an addition each; norms, RoPE and softmax are left out (docs/plamo3.md §2).
"""

from __future__ import annotations

from conformance.families.base import GLOBAL
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = [
    "attention_share",
    "cache_bytes",
    "decode_flops",
    "embedding_elements",
    "kv_bytes_per_token",
    "kv_read_bytes",
    "mask_bytes",
    "multiplied_elements",
    "tokens_read",
    "weight_bytes",
]

_BF16_BYTES, _FP32_BYTES = 2, 4


def embedding_elements(spec: Plamo3Spec) -> int:
    """V·D, the elements of the embedding."""
    return spec.vocab_size * spec.hidden_size


def multiplied_elements(spec: Plamo3Spec) -> int:
    """P_lin, the elements that take part in matrix products: those of all linear weights and of the head."""
    heads = spec.num_attention_heads + spec.num_key_value_heads
    block = 2 * spec.hidden_size * spec.head_dim * heads + 3 * spec.hidden_size * spec.intermediate_size
    return spec.num_hidden_layers * block + embedding_elements(spec)


def tokens_read(spec: Plamo3Spec, context: int) -> int:
    """A, the tokens that a query's row reads from the cache, summed over layers.

    Local layers read W of them at most, of either release: 4k's one more is not counted.
    """
    return sum(context if kind == GLOBAL else min(context, spec.window_size) for kind in spec.layer_kinds)


def decode_flops(spec: Plamo3Spec, context: int, batch: int = 1) -> int:
    """FLOPs of one step: 2B·P_lin + 4B·Hq·d·A."""
    return 2 * batch * multiplied_elements(spec) + _attention_flops(spec, context, batch)


def attention_share(spec: Plamo3Spec, context: int) -> float:
    """The part of a step's FLOPs that scores and mixing of values take, between 0 and 1."""
    return _attention_flops(spec, context, 1) / decode_flops(spec, context)


def weight_bytes(spec: Plamo3Spec) -> int:
    """Bytes of weights that one step reads, whatever the batch: 2·P_lin."""
    return _BF16_BYTES * multiplied_elements(spec)


def kv_read_bytes(spec: Plamo3Spec, context: int, batch: int = 1) -> int:
    """Bytes of K and V that one step reads: 4B·Hkv·d·A."""
    return batch * _kv_bytes(spec) * tokens_read(spec, context)


def kv_bytes_per_token(spec: Plamo3Spec, kind: str | None = None) -> int:
    """Bytes of K and V that one more token adds, in all layers or in those of one kind: 4·L·Hkv·d."""
    return _kv_bytes(spec) * sum(kind in (None, own) for own in spec.layer_kinds)


def cache_bytes(spec: Plamo3Spec, context: int, *, evict: bool = True) -> int:
    """Bytes of one row's KV cache at N tokens.

    Args:
        spec: the model.
        context: N.
        evict: local layers drop what lies beyond W; otherwise every layer keeps everything.
    """
    return kv_read_bytes(spec, context) if evict else context * kv_bytes_per_token(spec)


def mask_bytes(queries: int, keys: int) -> int:
    """Bytes of a dense FP32 mask [T, S]."""
    return _FP32_BYTES * queries * keys


def _attention_flops(spec: Plamo3Spec, context: int, batch: int) -> int:
    return 4 * batch * spec.num_attention_heads * spec.head_dim * tokens_read(spec, context)


def _kv_bytes(spec: Plamo3Spec) -> int:
    """Bytes of K and V of one token in one layer."""
    return 2 * _BF16_BYTES * spec.num_key_value_heads * spec.head_dim
