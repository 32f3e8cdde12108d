"""docs/gemma4.md as loops: float64, one query and one head at a time, nothing shared with the oracle."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence

import numpy as np

from conformance.families.gemma4.spec import Gemma4Spec

Weights = Mapping[str, np.ndarray]


def norm(w: np.ndarray | None, x: np.ndarray, eps: float) -> np.ndarray:
    """§2: w ⊙ x / sqrt(mean(x²) + eps); without w, a gain of 1."""
    mean_square = sum(value * value for value in x) / len(x)
    unit = np.array([value / math.sqrt(mean_square + eps) for value in x])
    return unit if w is None else w * unit


def gelu(x: np.ndarray) -> np.ndarray:
    """§2: the tanh approximation."""
    root = math.sqrt(2 / math.pi)
    return np.array([0.5 * v * (1 + math.tanh(root * (v + 0.044715 * v**3))) for v in x])


def frequencies(spec: Gemma4Spec, is_global: bool) -> list[float]:
    """§4: angle for each position of every pair."""
    if not is_global:
        return [spec.rope_local_theta ** (-2 * j / spec.head_dim) for j in range(spec.head_dim // 2)]
    d = spec.global_head_dim
    turning = math.floor(spec.partial_rotary_factor * d / 2)
    return [spec.rope_theta ** (-2 * j / d) if j < turning else 0.0 for j in range(d // 2)]


def rotate(x: np.ndarray, position: int, turns: Sequence[float]) -> np.ndarray:
    """§4: component j and component j + d/2 are a complex number that is turned."""
    pairs = len(x) // 2
    turned = [complex(x[j], x[j + pairs]) * cmath.exp(1j * position * turns[j]) for j in range(pairs)]
    return np.array([z.real for z in turned] + [z.imag for z in turned])


def sees(query: int, key: int, segments: Sequence[int], span: int | None) -> bool:
    """§3; segment -1 is padding."""
    if key > query or segments[key] == -1 or segments[key] != segments[query]:
        return False
    return span is None or query - span < key


def keys_and_values(
    spec: Gemma4Spec, is_global: bool, block: Weights, x: Sequence[np.ndarray], positions: Sequence[int]
) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    """§3: keys and values of every place and head, as a cache holds them."""
    d, eps = (spec.global_head_dim if is_global else spec.head_dim), spec.rms_norm_eps
    heads = spec.num_global_key_value_heads if is_global else spec.num_key_value_heads
    turns = frequencies(spec, is_global)
    keys, values = [], []
    for row, position in zip(x, positions, strict=True):
        projected = block["self_attn.k_proj.weight"] @ row
        source = projected if is_global else block["self_attn.v_proj.weight"] @ row
        cut = [slice(head * d, (head + 1) * d) for head in range(heads)]
        gain = block["self_attn.k_norm.weight"]
        keys.append([rotate(norm(gain, projected[place], eps), position, turns) for place in cut])
        values.append([norm(None, source[place], eps) for place in cut])
    return keys, values


def attention(
    spec: Gemma4Spec,
    is_global: bool,
    block: Weights,
    x: Sequence[np.ndarray],
    cached: tuple[list[list[np.ndarray]], list[list[np.ndarray]]],
    positions: Sequence[int],
    segments: Sequence[int],
) -> list[np.ndarray]:
    d, eps = (spec.global_head_dim if is_global else spec.head_dim), spec.rms_norm_eps
    kv_heads = spec.num_global_key_value_heads if is_global else spec.num_key_value_heads
    turns = frequencies(spec, is_global)
    keys, values = cached
    mixed = []
    for place, row in enumerate(x):
        projected = block["self_attn.q_proj.weight"] @ row
        heads = []
        for head in range(spec.num_attention_heads):
            kv_head = head // (spec.num_attention_heads // kv_heads)
            gained = norm(block["self_attn.q_norm.weight"], projected[head * d : (head + 1) * d], eps)
            query = rotate(gained, positions[place], turns)
            sum_of_values, total = np.zeros(d), 0.0
            for key in range(len(x)):
                if sees(place, key, segments, None if is_global else spec.window_size):
                    weight = math.exp(query @ keys[key][kv_head])
                    sum_of_values = sum_of_values + weight * values[key][kv_head]
                    total += weight
            heads.append(sum_of_values / total)
        mixed.append(block["self_attn.o_proj.weight"] @ np.concatenate(heads))
    return mixed


def forward(
    spec: Gemma4Spec,
    weights: Weights,
    tokens: Sequence[int],
    positions: Sequence[int],
    segments: Sequence[int],
) -> np.ndarray:
    """Logits [T, V] of one row without padding."""
    eps, cap = spec.rms_norm_eps, spec.final_logit_softcapping
    embedding = weights["model.embed_tokens.weight"]
    stream = [math.sqrt(spec.hidden_size) * embedding[token] for token in tokens]
    own = spec.num_hidden_layers - spec.num_kv_shared_layers
    latest: dict[bool, tuple[list[list[np.ndarray]], list[list[np.ndarray]]]] = {}
    for layer, layer_type in enumerate(spec.layer_types):
        prefix = f"model.layers.{layer}."
        block = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
        is_global = layer_type == "full_attention"
        x = [norm(block["input_layernorm.weight"], row, eps) for row in stream]
        if layer < own:
            latest[is_global] = keys_and_values(spec, is_global, block, x, positions)
        mixed = attention(spec, is_global, block, x, latest[is_global], positions, segments)
        for place, row in enumerate(stream):
            after = row + norm(block["post_attention_layernorm.weight"], mixed[place], eps)
            entering = norm(block["pre_feedforward_layernorm.weight"], after, eps)
            gate, up = block["mlp.gate_proj.weight"] @ entering, block["mlp.up_proj.weight"] @ entering
            out = block["mlp.down_proj.weight"] @ (gelu(gate) * up)
            after = after + norm(block["post_feedforward_layernorm.weight"], out, eps)
            stream[place] = after * block["layer_scalar"][0]
    last = [norm(weights["model.norm.weight"], row, eps) for row in stream]
    return np.array([[cap * math.tanh(logit / cap) for logit in embedding @ row] for row in last])
