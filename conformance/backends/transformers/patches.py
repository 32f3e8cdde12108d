"""Patches of what Transformers and PyTorch do for a model: caches, attention, tied weights.

Each function plants one fault (`conformance.patches`) in the process that it runs in. None changes the
model's remote code.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from conformance.backends.patching import Planted

__all__ = [
    "cache_in_bfloat16",
    "causal_mask_at_the_start",
    "crop_ignored",
    "full_layers_slide",
    "heads_tiled",
    "mask_one_ahead",
    "one_row_unmasked",
    "reorder_keys_only",
    "reorder_sliding_only",
    "sliding_keeps_first",
    "sliding_length_capped",
    "sliding_one_short",
    "weights_untied",
]


def _caches() -> Any:
    return import_module("transformers.cache_utils")


def _after_update(planted: Planted, layer: Any, keep: Callable[[Any, Tensor, Tensor], bool]) -> None:
    """Let `keep(layer, all keys, all values)` change what a cache layer keeps; true where it did."""

    def make(update: Any) -> Any:
        def changed(self: Any, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            keys, values = update(self, key_states, value_states, *args, **kwargs)
            if keep(self, keys, values):
                planted.hit()
            return keys, values

        return changed

    planted.replace(layer, "update", make)


def sliding_one_short(planted: Planted) -> None:
    """A full sliding layer keeps one token too few."""

    def keep(layer: Any, keys: Tensor, values: Tensor) -> bool:
        if layer.keys.shape[-2] < layer.sliding_window - 1:
            return False
        layer.keys, layer.values = layer.keys[:, :, 1:], layer.values[:, :, 1:]
        return True

    _after_update(planted, _caches().DynamicSlidingWindowLayer, keep)


def sliding_keeps_first(planted: Planted) -> None:
    """A full sliding layer keeps its oldest tokens and drops the newest."""

    def keep(layer: Any, keys: Tensor, values: Tensor) -> bool:
        kept = layer.sliding_window - 1
        if keys.shape[-2] <= kept:
            return False
        layer.keys, layer.values = keys[:, :, :kept], values[:, :, :kept]
        return True

    _after_update(planted, _caches().DynamicSlidingWindowLayer, keep)


def sliding_length_capped(planted: Planted) -> None:
    """A sliding layer answers what it holds when asked what it has seen, so that crop's guard never fires."""

    def make(seen: Any) -> Any:
        def changed(self: Any) -> int:
            length: int = seen(self)
            if length < self.sliding_window:
                return length
            planted.hit()
            return int(self.sliding_window) - 1

        return changed

    planted.replace(_caches().DynamicSlidingWindowLayer, "get_seq_length", make)


def full_layers_slide(planted: Planted) -> None:
    """The cache of a full-attention layer is a sliding one."""
    sliding = _caches().DynamicSlidingWindowLayer

    def make(init: Any) -> Any:
        def changed(self: Any, *args: Any, config: Any = None, **kwargs: Any) -> None:
            init(self, *args, config=config, **kwargs)
            for index, layer in enumerate(self.layers):
                if not layer.is_sliding:
                    planted.hit()
                    self.layers[index] = sliding(config)

        return changed

    planted.replace(_caches().DynamicCache, "__init__", make)


def cache_in_bfloat16(planted: Planted) -> None:
    """Keys and values are rounded to BF16 when they are cached."""

    def make(update: Any) -> Any:
        def changed(self: Any, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            coarse = [t.to(torch.bfloat16).to(t.dtype) for t in (key_states, value_states)]
            if key_states.dtype != torch.bfloat16:
                planted.hit()
            return update(self, *coarse, *args, **kwargs)

        return changed

    for layer in ("DynamicLayer", "DynamicSlidingWindowLayer"):
        planted.replace(getattr(_caches(), layer), "update", make)


def crop_ignored(planted: Planted) -> None:
    """Cutting the cache back does nothing."""

    def make(crop: Any) -> Any:
        def changed(self: Any, max_length: int) -> None:
            planted.hit()

        return changed

    planted.replace(_caches().Cache, "crop", make)


def reorder_sliding_only(planted: Planted) -> None:
    """Cache rows are moved in sliding layers only."""

    def make(reorder: Any) -> Any:
        def changed(self: Any, beam_idx: Tensor) -> None:
            for layer in self.layers:
                if layer.is_sliding:
                    layer.reorder_cache(beam_idx)
                else:
                    planted.hit()

        return changed

    planted.replace(_caches().Cache, "reorder_cache", make)


def reorder_keys_only(planted: Planted) -> None:
    """Cache rows are moved in the keys, but not in the values."""

    def make(reorder: Any) -> Any:
        def changed(self: Any, beam_idx: Tensor) -> None:
            values = self.values
            reorder(self, beam_idx)
            planted.hit()
            self.values = values

        return changed

    planted.replace(_caches().CacheLayerMixin, "reorder_cache", make)


def _attention(
    planted: Planted, change: Callable[[Any, Tensor, Tensor, Tensor, dict[str, Any]], Any]
) -> None:
    """Let `change(attention, q, k, v, keyword arguments)` stand in for PyTorch's attention."""

    def make(attention: Any) -> Any:
        def changed(query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Any:
            return change(attention, query, key, value, kwargs)

        return changed

    planted.replace(torch.nn.functional, "scaled_dot_product_attention", make)


def heads_tiled(planted: Planted) -> None:
    """Grouped attention gives query head h the K/V head h mod Hkv."""

    def change(attention: Any, q: Tensor, k: Tensor, v: Tensor, kwargs: dict[str, Any]) -> Any:
        if not kwargs.pop("enable_gqa", False):
            return attention(q, k, v, **kwargs)
        planted.hit()
        groups = q.shape[1] // k.shape[1]
        return attention(q, k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1), **kwargs)

    _attention(planted, change)


def one_row_unmasked(planted: Planted) -> None:
    """A query of one row takes a kernel that has no mask."""

    def change(attention: Any, q: Tensor, k: Tensor, v: Tensor, kwargs: dict[str, Any]) -> Any:
        mask = kwargs.get("attn_mask")
        if mask is not None and q.shape[-2] == 1 and not bool(mask.all()):
            planted.hit()
            kwargs["attn_mask"] = None
        return attention(q, k, v, **kwargs)

    _attention(planted, change)


def causal_mask_at_the_start(planted: Planted) -> None:
    """On top of a cache, a mask is taken for a causal one, which PyTorch anchors at the first key."""

    def change(attention: Any, q: Tensor, k: Tensor, v: Tensor, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("attn_mask") is not None and q.shape[-2] < k.shape[-2]:
            planted.hit()
            kwargs.update(attn_mask=None, is_causal=True)
        return attention(q, k, v, **kwargs)

    _attention(planted, change)


def mask_one_ahead(planted: Planted) -> None:
    """A boolean mask lets every query see the key after its last one too."""

    def change(attention: Any, q: Tensor, k: Tensor, v: Tensor, kwargs: dict[str, Any]) -> Any:
        mask = kwargs.get("attn_mask")
        if mask is not None:
            wider = mask.clone()
            wider[..., 1:] |= mask[..., :-1]
            if not torch.equal(wider, mask):
                planted.hit()
            kwargs["attn_mask"] = wider
        return attention(q, k, v, **kwargs)

    _attention(planted, change)


def weights_untied(planted: Planted) -> None:
    """A tied head is not tied to the embedding when the model is loaded."""

    def make(tie: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> None:
            if self.config.tie_word_embeddings:
                planted.hit()
            else:
                tie(self, *args, **kwargs)

        return changed

    planted.replace(import_module("transformers").PreTrainedModel, "tie_weights", make)
