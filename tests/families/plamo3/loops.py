"""docs/plamo3.md as loops: float64, one query and one head at a time, nothing shared with the oracle."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence

import numpy as np

from conformance.families.plamo3.spec import Plamo3Spec

Weights = Mapping[str, np.ndarray]


def norm(c: float, w: np.ndarray, x: np.ndarray, eps: float) -> np.ndarray:
    """§4: (c + w) ⊙ x / sqrt(mean(x²) + eps)."""
    mean_square = sum(value * value for value in x) / len(x)
    return np.array(
        [(c + gain) * value / math.sqrt(mean_square + eps) for gain, value in zip(w, x, strict=True)]
    )


def silu(x: np.ndarray) -> np.ndarray:
    return np.array([value / (1 + math.exp(-value)) for value in x])


def yarn_range(pairs: int, original: float, theta: float) -> tuple[float, float]:
    """§5: low and high."""
    low = pairs * math.log(original / (32 * 2 * math.pi)) / math.log(theta)
    high = pairs * math.log(original / (1 * 2 * math.pi)) / math.log(theta)
    return low, high


def frequencies(spec: Plamo3Spec, is_global: bool) -> tuple[list[float], float]:
    """§5: angle for each position of every pair, and the amplitude."""
    pairs = spec.head_dim // 2
    theta = spec.rope_theta if is_global else spec.rope_local_theta
    plain = [theta ** (-2 * j / spec.head_dim) for j in range(pairs)]
    if not is_global or spec.rope_scaling_factor == 1:
        return plain, 1.0
    low, high = yarn_range(pairs, spec.initial_context_length, theta)
    scaled = []
    for j, frequency in enumerate(plain):
        mask = 1 - min(max((j - low) / (high - low), 0), 1)
        scaled.append((1 - mask) * frequency / spec.rope_scaling_factor + mask * frequency)
    return scaled, 0.1 * math.log(spec.rope_scaling_factor) + 1


def rotate(x: np.ndarray, position: int, turns: Sequence[float], amplitude: float) -> np.ndarray:
    """§5: component j and component j + d/2 are a complex number that is turned."""
    pairs = len(x) // 2
    turned = [
        complex(x[j], x[j + pairs]) * amplitude * cmath.exp(1j * position * turns[j]) for j in range(pairs)
    ]
    return np.array([z.real for z in turned] + [z.imag for z in turned])


def sees(query: int, key: int, segments: Sequence[int], span: int | None) -> bool:
    """§6; segment -1 is padding."""
    if key > query or segments[key] == -1 or segments[key] != segments[query]:
        return False
    return span is None or query - key <= span - 1


def attention(
    spec: Plamo3Spec,
    is_global: bool,
    block: Weights,
    x: Sequence[np.ndarray],
    positions: Sequence[int],
    segments: Sequence[int],
) -> list[np.ndarray]:
    d, eps = spec.head_dim, spec.rms_norm_eps
    first_key = spec.num_attention_heads * d
    first_value = first_key + spec.num_key_value_heads * d
    turns, amplitude = frequencies(spec, is_global)
    w = spec.window_size
    span = None if is_global else w if spec.rope_scaling_factor > 1 else w + 1
    projected = [block["mixer.qkv_proj.weight"] @ row for row in x]

    def turned(row: int, start: int, gain: np.ndarray) -> np.ndarray:
        head = norm(1.0, gain, projected[row][start : start + d], eps)
        return rotate(head, positions[row], turns, amplitude)

    mixed = []
    for query_row in range(len(x)):
        heads = []
        for head in range(spec.num_attention_heads):
            kv_head = head // (spec.num_attention_heads // spec.num_key_value_heads)
            query = turned(query_row, head * d, block["mixer.q_norm.weight"])
            weights, total = np.zeros(d), 0.0
            for key_row in range(len(x)):
                if sees(query_row, key_row, segments, span):
                    key = turned(key_row, first_key + kv_head * d, block["mixer.k_norm.weight"])
                    weight = math.exp(query @ key / math.sqrt(d))
                    start = first_value + kv_head * d
                    weights = weights + weight * projected[key_row][start : start + d]
                    total += weight
            heads.append(weights / total)
        mixed.append(block["mixer.o_proj.weight"] @ np.concatenate(heads))
    return mixed


def forward(
    spec: Plamo3Spec,
    weights: Weights,
    tokens: Sequence[int],
    positions: Sequence[int],
    segments: Sequence[int],
) -> np.ndarray:
    """Logits [T, V] of one row without padding."""
    eps, inner = spec.rms_norm_eps, spec.intermediate_size
    x = [weights["model.embed_tokens.weight"][token] for token in tokens]
    for layer in range(spec.num_hidden_layers):
        prefix = f"model.layers.layers.{layer}."
        block = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
        is_global = (layer + 1) % spec.sliding_window_pattern == 0
        entering = [norm(1.0, block["pre_mixer_norm.weight"], row, eps) for row in x]
        mixed = attention(spec, is_global, block, entering, positions, segments)
        x = [
            row + norm(1 / 5, block["post_mixer_norm.weight"], out, eps)
            for row, out in zip(x, mixed, strict=True)
        ]
        for place, row in enumerate(x):
            both = block["mlp.gate_up_proj.weight"] @ norm(1.0, block["pre_mlp_norm.weight"], row, eps)
            out = block["mlp.down_proj.weight"] @ (silu(both[:inner]) * both[inner:])
            x[place] = row + norm(5**-1.5, block["post_mlp_norm.weight"], out, eps)
    head = weights["model.embed_tokens.weight" if spec.tie_word_embeddings else "lm_head.weight"]
    last = [norm(1.0, weights["model.norm.weight"], row, eps) for row in x]
    return np.array([head[: spec.vocab_size] @ row for row in last])
