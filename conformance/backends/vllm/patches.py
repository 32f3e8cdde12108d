"""Patches of what vLLM does for any model: attention layers, RoPE, activations, positions, the KV cache.

Each function plants one fault (`conformance.patches`) in the process that it runs in. vLLM is imported
here, so the adapter must have set its environment before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from conformance.backends.patching import Planted

__all__ = [
    "amplitude_missing",
    "block_appended_early",
    "blocks_of_first_row",
    "decode_position_late",
    "decode_slot_early",
    "gate_up_exchanged",
    "rope_shared",
    "row_not_moved",
    "scale_missing",
    "window_long",
    "window_on_every_layer",
    "window_short",
    "window_short_in_decode",
    "yarn_missing",
    "yarn_rounded",
]


def _module(name: str) -> Any:
    return import_module(f"vllm.{name}")


def _attention_layers(planted: Planted, change: Callable[[float, dict[str, Any]], float]) -> None:
    """Let `change(scale, keyword arguments)` alter how attention layers are built; it returns the scale."""

    def make(init: Any) -> Any:
        def changed(
            self: Any, num_heads: int, head_size: int, scale: float, *args: Any, **kwargs: Any
        ) -> None:
            wanted = dict(kwargs)
            other = change(scale, kwargs)
            if (other, kwargs) != (scale, wanted):
                planted.hit()
            init(self, num_heads, head_size, other, *args, **kwargs)

        return changed

    planted.replace(_module("model_executor.layers.attention").Attention, "__init__", make)


def _window_by(planted: Planted, difference: int) -> None:
    def change(scale: float, kwargs: dict[str, Any]) -> float:
        if kwargs.get("per_layer_sliding_window") is not None:
            kwargs["per_layer_sliding_window"] += difference
        return scale

    _attention_layers(planted, change)


def window_long(planted: Planted) -> None:
    """Layers with a window get one token too many."""
    _window_by(planted, 1)


def window_short(planted: Planted) -> None:
    """Layers with a window get one token too few."""
    _window_by(planted, -1)


def window_on_every_layer(planted: Planted) -> None:
    """Layers without a window get the window of the others."""

    def change(scale: float, kwargs: dict[str, Any]) -> float:
        if kwargs.get("per_layer_sliding_window") is None:
            config = _module("config").get_current_vllm_config().model_config.hf_config
            kwargs["per_layer_sliding_window"] = config.sliding_window
        return scale

    _attention_layers(planted, change)


def scale_missing(planted: Planted) -> None:
    """Scores are not scaled."""
    _attention_layers(planted, lambda scale, kwargs: 1.0)


def window_short_in_decode(planted: Planted) -> None:
    """The CPU kernel gets a window that is one token too short when no query has several rows."""

    def make(forward: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            metadata = kwargs.get("attn_metadata") or (args[5] if len(args) > 5 else None)
            if metadata is None or metadata.max_query_len > 1 or self.sliding_window <= 1:
                return forward(self, *args, **kwargs)
            planted.hit()
            self.sliding_window -= 1
            try:
                return forward(self, *args, **kwargs)
            finally:
                self.sliding_window += 1

        return changed

    planted.replace(_module("v1.attention.backends.cpu_attn").CPUAttentionBackendImpl, "forward", make)


class _ByShape(dict[Any, Any]):
    """A cache of RoPE modules that forgets their parameters: whatever has the shape is found."""

    def __init__(self, planted: Planted) -> None:
        super().__init__()
        self.planted = planted
        self.whole: dict[Any, Any] = {}

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, tuple)
        return super().__contains__(key[:4])

    def __getitem__(self, key: Any) -> Any:
        if self.whole[key[:4]] != key:
            self.planted.hit()
        return super().__getitem__(key[:4])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.whole[key[:4]] = key
        super().__setitem__(key[:4], value)


def rope_shared(planted: Planted) -> None:
    """The cache of RoPE modules ignores theta and scaling: all layers get the first one's."""
    planted.replace(
        _module("model_executor.layers.rotary_embedding"), "_ROPE_DICT", lambda _: _ByShape(planted)
    )


def _yarn() -> Any:
    return _module("model_executor.layers.rotary_embedding.yarn_scaling_rope")


def yarn_missing(planted: Planted) -> None:
    """YaRN is ignored: plain frequencies, no amplitude."""

    def make(compute: Any) -> Any:
        def changed(self: Any, scaling_factor: float) -> Tensor:
            planted.hit()
            self.mscale = 1.0
            exponents = torch.arange(0, self.rotary_dim, 2, dtype=torch.float) / self.rotary_dim
            return torch.reciprocal(self.base**exponents)

        return changed

    planted.replace(_yarn().YaRNScalingRotaryEmbedding, "_compute_inv_freq", make)


def yarn_rounded(planted: Planted) -> None:
    """The ends of YaRN's ramp are rounded, though the configuration says that they must not be."""

    def make(find: Any) -> Any:
        def changed(
            low: int, high: int, dim: int, base: float, length: int, truncate: bool
        ) -> tuple[float, float]:
            if not truncate:
                planted.hit()
            ends: tuple[float, float] = find(low, high, dim, base, length, True)
            return ends

        return changed

    planted.replace(_yarn(), "yarn_find_correction_range", make)


def amplitude_missing(planted: Planted) -> None:
    """YaRN's amplitude is 1."""

    def make(amplitude: Any) -> Any:
        def changed(scale: float = 1, mscale: float = 1) -> float:
            planted.hit()
            return 1.0

        return changed

    planted.replace(_yarn(), "yarn_get_mscale", make)


def gate_up_exchanged(planted: Planted) -> None:
    """SwiGLU takes the second half for the gate."""

    def make(forward: Any) -> Any:
        def changed(x: Tensor) -> Any:
            planted.hit()
            first, second = x.chunk(2, dim=-1)
            return forward(torch.cat([second, first], dim=-1))

        return changed

    planted.replace(_module("model_executor.layers.activation").SiluAndMul, "forward_native", make)


def decode_position_late(planted: Planted) -> None:
    """A single token on top of a cache gets the position after its own; its slot is the right one."""

    def make(prepare: Any) -> Any:
        def changed(self: Any, scheduler_output: Any, num_scheduled_tokens: Any) -> Any:
            answer = prepare(self, scheduler_output, num_scheduled_tokens)
            last = num_scheduled_tokens.cumsum() - 1
            for place, tokens in zip(last.tolist(), num_scheduled_tokens.tolist(), strict=True):
                if tokens == 1 and self.positions[place] > 0:
                    planted.hit()
                    self.positions[place] += 1
            return answer

        return changed

    planted.replace(_module("v1.worker.gpu_model_runner").GPUModelRunner, "_prepare_inputs", make)


def decode_slot_early(planted: Planted) -> None:
    """The key and value of a single token on top of a cache are written to the slot before its own."""

    def make(compute: Any) -> Any:
        def changed(self: Any, num_reqs: int, query_start_loc: Tensor, positions: Tensor) -> None:
            compute(self, num_reqs, query_start_loc, positions)
            if len(positions) == num_reqs and int(positions.min()) > 0:
                planted.hit()
                self.slot_mapping.gpu[:num_reqs] -= 1

        return changed

    planted.replace(_module("v1.worker.block_table").BlockTable, "compute_slot_mapping", make)


def blocks_of_first_row(planted: Planted) -> None:
    """In decode, all requests of a step read the first one's blocks of the KV cache."""

    def make(build: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            metadata = build(self, *args, **kwargs)
            if len(metadata.block_table) > 1 and metadata.max_query_len == 1:
                planted.hit()
                metadata.block_table = metadata.block_table[:1].expand_as(metadata.block_table).contiguous()
            return metadata

        return changed

    planted.replace(_module("v1.attention.backends.cpu_attn").CPUAttentionMetadataBuilder, "build", make)


def block_appended_early(planted: Planted) -> None:
    """A block of the KV cache that a later step adds takes the place of the one before it."""

    def make(append: Any) -> Any:
        def changed(self: Any, block_ids: list[int], row_idx: int) -> None:
            late = bool(block_ids) and self.num_blocks_per_row[row_idx] > 0
            if late:
                planted.hit()
                self.num_blocks_per_row[row_idx] -= 1
            append(self, block_ids, row_idx)
            if late:
                self.num_blocks_per_row[row_idx] += 1

        return changed

    planted.replace(_module("v1.worker.block_table").BlockTable, "append_row", make)


def row_not_moved(planted: Planted) -> None:
    """When a request has ended and another one takes its place in the batch, its blocks stay behind."""

    def make(move: Any) -> Any:
        def changed(self: Any, src: int, tgt: int) -> None:
            planted.hit()

        return changed

    planted.replace(_module("v1.worker.block_table").BlockTable, "move_row", make)
