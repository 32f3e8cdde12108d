"""Stand-in for the remote code of PLaMo 3 release 4k, on Transformers 4.57 (docs/plamo3.md §3 to §8).

Our own implementation of the documented behaviour (docs/standins.md). Axes: B rows, T new tokens, S
keys that the cache returned, D hidden, H query heads, K key/value heads, d head_dim, F inner, V
vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_plamo import FULL, Plamo3Config

HEAD_ROWS_MULTIPLE = 16


class Plamo3Cache:
    """K before RoPE and V of every layer; a local layer keeps the last W tokens (§7).

    Attributes:
        windows: W for each local layer, None for each global one.
        keys: per layer [B, K, kept, d], or None while empty.
        values: as `keys`.
        length: tokens seen, kept or not, by each layer.
    """

    def __init__(self, config: Plamo3Config) -> None:
        self.windows = config.interleaved_sliding_window
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.keys: list[Tensor | None] = [None] * len(self.windows)
        self.values: list[Tensor | None] = [None] * len(self.windows)
        self.length = [0] * len(self.windows)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens that the layer has seen."""
        return self.length[layer_idx]

    def update(self, k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Add T tokens; returns what was kept followed by the new ones, so that decode sees W + 1."""
        self.length[layer] += k.shape[2]
        old_k, old_v = self.keys[layer], self.values[layer]
        if old_k is not None and old_v is not None:
            k, v = torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)
        window = self.windows[layer]
        kept = slice(None) if window is None else slice(-window, None)
        self.keys[layer], self.values[layer] = k[:, :, kept], v[:, :, kept]
        return k, v

    def crop(self, max_length: int) -> None:
        """Cut back to the first `max_length` tokens, or drop the last `-max_length`; longer is left alone.

        Raises:
            ValueError: a local layer has dropped tokens that would be in view again. Nothing is cut then.
        """
        seen = self.get_seq_length()
        length = max_length if max_length >= 0 else max(0, seen + max_length)
        if length >= seen:
            return
        held = [0 if k is None else k.shape[2] for k in self.keys]
        for layer, count in enumerate(held):
            if count < seen:
                raise ValueError(
                    f"cannot crop to {length} tokens: layer {layer} has kept only the last {count} of {seen}"
                )
        self.keys = [None if k is None else k[:, :, :length] for k in self.keys]
        self.values = [None if v is None else v[:, :, :length] for v in self.values]
        self.length = [length] * len(self.windows)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Make row r the former row `beam_idx[r]`, in every layer."""
        self.keys = [None if k is None else k.index_select(0, beam_idx.to(k.device)) for k in self.keys]
        self.values = [None if v is None else v.index_select(0, beam_idx.to(v.device)) for v in self.values]


@dataclass(frozen=True)
class Call:
    """What every layer is told besides its input.

    Attributes:
        attention_mask: the caller's, [B, total] or [B, 1, T, total].
        masked: build masks; false means plain causal attention (§8).
        cache: K and V of earlier calls, or None.
    """

    attention_mask: Tensor | None
    masked: bool
    cache: Plamo3Cache | None


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype of norms and RoPE angles: FP64 in FP64 runs, FP32 in all others (§4, §5)."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Plamo3Norm(nn.Module):
    """RMSNorm whose stored weight is the gain minus `offset` (§4)."""

    def __init__(self, size: int, eps: float, offset: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis; the cast comes before the gain."""
        wide = x.to(at_least_float32(x.dtype))
        unit = wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return unit.to(x.dtype) * (self.offset + self.weight)


class Plamo3Rotary:
    """cos and sin of positions 0 to S - 1 for one kind of layer; no scaling in this release (§5).

    Frequencies are Python floats until they are used: a buffer would follow the model into BF16, or
    be left unset by a load that starts on the meta device.
    """

    def __init__(self, config: Plamo3Config, kind: str) -> None:
        pairs = config.head_dim // 2
        rope = config.rope_parameters[kind]
        if rope["rope_type"] != "default":
            raise ValueError(
                f"rope_type = {rope['rope_type']!r}, but should be 'default': 4k does not scale RoPE"
            )
        theta = float(rope["rope_theta"])
        self.frequencies = [theta ** (-pair / pairs) for pair in range(pairs)]

    def __call__(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, [S, d] each, in the dtype of `like`: computed wide, then cast."""
        wide = at_least_float32(like.dtype)
        positions = torch.arange(length, dtype=wide, device=like.device)
        angles = torch.outer(positions, torch.tensor(self.frequencies, dtype=wide, device=like.device))
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the split-half pairs (j, j + d/2) of [B, heads, length, d] (§5)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def visibility(new: int, keys: int, window: int | None, given: Tensor | None, device: torch.device) -> Tensor:
    """[T, S] or [B, 1, T, S]: may this query see this key? (§6)

    Args:
        new: T; the queries are the last T of the S keys.
        keys: S.
        window: W on local layers, None on global ones.
        given: the caller's mask, [B, total] or [B, 1, T, total], true where a key may be seen.
        device: where the mask is made.

    Raises:
        ValueError: the caller's mask does not cover the keys.
    """
    seen = torch.ones(new, keys, dtype=torch.bool, device=device).tril(diagonal=keys - new)
    if window is not None:
        seen = seen.triu(diagonal=keys - new - window)
    if given is None:
        return seen
    total = given.shape[-1]
    # A local layer may have evicted the first columns; a global one holds all of them.
    if total < keys or (window is None and total > keys):
        raise ValueError(f"attention_mask has {total} columns, but the cache returned {keys} keys")
    columns = given.bool()[..., total - keys :]
    seen = seen & (columns[:, None, None] if columns.dim() == 2 else columns)
    # A padding query sees nothing. Nobody reads its output, but a softmax over nothing would be NaN.
    return seen | ~seen.any(dim=-1, keepdim=True)


class Plamo3Attention(nn.Module):
    """Grouped-query attention; q and k are normalised before RoPE (§4)."""

    def __init__(self, config: Plamo3Config, layer: int) -> None:
        super().__init__()
        kind, d = config.layer_types[layer], config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.layer = layer
        self.head_dim = d
        self.widths = [heads * d, kv_heads * d, kv_heads * d]
        self.groups = heads // kv_heads
        self.window = None if kind == FULL else config.window_size
        self.rotary = Plamo3Rotary(config, kind)
        self.qkv_proj = nn.Linear(config.hidden_size, sum(self.widths), bias=False)
        self.o_proj = nn.Linear(self.widths[0], config.hidden_size, bias=False)
        self.q_norm = Plamo3Norm(d, config.rms_norm_eps)
        self.k_norm = Plamo3Norm(d, config.rms_norm_eps)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        batch, new, _ = x.shape
        q, k, v = (t.view(batch, new, -1, self.head_dim) for t in self.qkv_proj(x).split(self.widths, dim=-1))
        q = self.q_norm(q).transpose(1, 2)  # B H T d
        k = self.k_norm(k).transpose(1, 2)  # B K T d
        v = v.transpose(1, 2)
        if call.cache is not None:
            k, v = call.cache.update(k, v, self.layer)  # B K S d; keys are kept before RoPE (§7)
        keys = k.shape[2]
        cos, sin = self.rotary(keys, like=k)
        q, k = rotate(q, cos[keys - new :], sin[keys - new :]), rotate(k, cos, sin)
        mask = visibility(new, keys, self.window, call.attention_mask, x.device) if call.masked else None
        # Consecutive query heads share one K/V head.
        k, v = k.repeat_interleave(self.groups, dim=1), v.repeat_interleave(self.groups, dim=1)  # B H S d
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, new, -1))


class Plamo3MLP(nn.Module):
    """down(silu(gate) * up), with gate and up stacked in one projection (§4)."""

    def __init__(self, config: Plamo3Config) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(nn.functional.silu(gate) * up)


class Plamo3Block(nn.Module):
    """One layer: two residual branches, each normalised before and after (§4)."""

    def __init__(self, config: Plamo3Config, layer: int) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.mixer = Plamo3Attention(config, layer)
        self.mlp = Plamo3MLP(config)
        self.pre_mixer_norm = Plamo3Norm(size, eps)
        self.post_mixer_norm = Plamo3Norm(size, eps, offset=1 / 5)
        self.pre_mlp_norm = Plamo3Norm(size, eps)
        self.post_mlp_norm = Plamo3Norm(size, eps, offset=5**-1.5)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        x = x + self.post_mixer_norm(self.mixer(self.pre_mixer_norm(x), call))
        return x + self.post_mlp_norm(self.mlp(self.pre_mlp_norm(x)))


class Plamo3Decoder(nn.Module):
    """The layers; this level gives parameter names their doubled ``layers.layers`` (§3)."""

    def __init__(self, config: Plamo3Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Plamo3Block(config, layer) for layer in range(config.num_hidden_layers))

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        for layer in self.layers:
            x = layer(x, call)
        return x


class Plamo3Model(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, config: Plamo3Config) -> None:
        super().__init__()
        self.window_size = config.window_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = Plamo3Decoder(config)
        self.norm = Plamo3Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None, cache: Plamo3Cache | None) -> Tensor:
        """[B, T] to [B, T, D]."""
        # Exact here: up to W + 1 tokens, a local layer's band hides nothing (§8).
        short = self.training and cache is None and input_ids.shape[1] <= self.window_size + 1
        call = Call(attention_mask, masked=not short or attention_mask is not None, cache=cache)
        return self.norm(self.layers(self.embed_tokens(input_ids), call))


class Plamo3ForCausalLM(PreTrainedModel):
    """The model with its head; loaded by AutoModelForCausalLM."""

    config_class = Plamo3Config
    base_model_prefix = "model"
    _no_split_modules = ["Plamo3Block"]
    _supports_sdpa = True
    _tied_weights_keys = ["lm_head.weight"]

    def __init__(self, config: Plamo3Config) -> None:
        super().__init__(config)
        rows = math.ceil(config.vocab_size / HEAD_ROWS_MULTIPLE) * HEAD_ROWS_MULTIPLE
        self.model = Plamo3Model(config)
        self.lm_head = nn.Linear(config.hidden_size, rows, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The embedding."""
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        """The head."""
        return self.lm_head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Plamo3Cache | None = None,
        use_cache: bool | None = None,
    ) -> CausalLMOutputWithPast:
        """Logits of every new token.

        Args:
            input_ids: [B, T].
            attention_mask: [B, total], true on real tokens, or [B, 1, T, total], true where a query may
                see a key; total counts cached and new tokens. Intersected with each layer's own band.
            position_ids: accepted and ignored: positions are internal (§7).
            past_key_values: what an earlier call returned.
            use_cache: make a cache if none is given; by default in evaluation mode only.

        Returns:
            `logits` [B, T, V] and `past_key_values`.
        """
        if past_key_values is None and (not self.training if use_cache is None else use_cache):
            past_key_values = Plamo3Cache(self.config)
        hidden = self.model(input_ids, attention_mask, past_key_values)
        logits = self.lm_head(hidden)[..., : self.config.vocab_size]  # padding rows of the head (§3)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)
