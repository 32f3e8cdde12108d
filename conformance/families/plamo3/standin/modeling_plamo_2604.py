"""Stand-in for the remote code of PLaMo 3 release 2604, on Transformers 5 (docs/plamo3.md §3 to §8).

Our own implementation of the documented behaviour (docs/standins.md). Axes: B rows, T new tokens, S
keys that the cache returned, D hidden, H query heads, K key/value heads, d head_dim, F inner, V
vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_plamo import FULL, Plamo3Config

HEAD_ROWS_MULTIPLE = 16


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
    cache: DynamicCache | None


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
    """cos and sin of positions 0 to S - 1 for one kind of layer (§5).

    Frequencies are Python floats until they are used: a buffer would follow the model into BF16, or
    be left unset by a load that starts on the meta device.
    """

    def __init__(self, config: Plamo3Config, kind: str) -> None:
        rope = config.rope_parameters[kind]
        pairs = config.head_dim // 2
        theta = float(rope["rope_theta"])
        self.amplitude = 1.0
        self.frequencies = [theta ** (-pair / pairs) for pair in range(pairs)]
        if rope["rope_type"] == "yarn":
            factor, original = float(rope["factor"]), rope["original_max_position_embeddings"]

            def turning(beta: float) -> float:
                """The pair, not rounded, that turns `beta` times within the original length."""
                return pairs * math.log(original / (beta * 2 * math.pi)) / math.log(theta)

            low, high = turning(rope["beta_fast"]), turning(rope["beta_slow"])
            for pair, plain in enumerate(self.frequencies):
                kept = 1 - min(max((pair - low) / (high - low), 0.0), 1.0)
                self.frequencies[pair] = kept * plain + (1 - kept) * plain / factor
            self.amplitude = 0.1 * math.log(factor) + 1

    def __call__(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, [S, d] each, in the dtype of `like`: computed wide, cast, then scaled."""
        wide = at_least_float32(like.dtype)
        positions = torch.arange(length, dtype=wide, device=like.device)
        angles = torch.outer(positions, torch.tensor(self.frequencies, dtype=wide, device=like.device))
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(like.dtype) * self.amplitude, angles.sin().to(like.dtype) * self.amplitude


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
        seen = seen.triu(diagonal=keys - new - (window - 1))
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
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
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

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None, cache: DynamicCache | None) -> Tensor:
        """[B, T] to [B, T, D]."""
        # The bound is one too large for a window of W: at T = W + 1 local layers see W + 1 keys (§8).
        short = self.training and cache is None and input_ids.shape[1] <= self.window_size + 1
        call = Call(attention_mask, masked=not short or attention_mask is not None, cache=cache)
        return self.norm(self.layers(self.embed_tokens(input_ids), call))


class Plamo3ForCausalLM(PreTrainedModel):
    """The model with its head; loaded by AutoModelForCausalLM."""

    config_class = Plamo3Config
    base_model_prefix = "model"
    _no_split_modules = ["Plamo3Block"]
    _supports_sdpa = True
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

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
        past_key_values: DynamicCache | None = None,
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
            past_key_values = DynamicCache(config=self.config)
        hidden = self.model(input_ids, attention_mask, past_key_values)
        logits = self.lm_head(hidden)[..., : self.config.vocab_size]  # padding rows of the head (§3)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)
