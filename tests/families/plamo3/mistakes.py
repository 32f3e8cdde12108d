"""The ten hiding places of docs/checkpoints.md, and the mistakes that a careless tiny model hides in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.plamo3 import reference
from conformance.families.plamo3.spec import Plamo3Spec

Weights = Mapping[str, Tensor]
Parts = Mapping[str, Callable[..., Any]]

HIDING_PLACES = {
    1: "norm weights of zero",
    2: "one key/value head, or one for each query head",
    3: "square or related dimensions",
    4: "sequences inside the window",
    5: "position 0 alone",
    6: "top tokens or the last position alone",
    7: "equal thetas",
    8: "the first few positions",
    9: "activations of unit variance",
    10: "uniform attention",
}
OFFSETS = {
    "pre_mixer_norm": 1.0,
    "post_mixer_norm": 1 / 5,
    "pre_mlp_norm": 1.0,
    "post_mlp_norm": 5**-1.5,
    "q_norm": 1.0,
    "k_norm": 1.0,
    "norm": 1.0,
}
BOTH = ("2604", "4k")


@dataclass(frozen=True)
class Mistake:
    """One deviation, as a change of the oracle's inputs or of its parts.

    Attributes:
        place: key of `HIDING_PLACES`.
        name: what is done wrongly.
        spec: the configuration that the mistake amounts to.
        weights: the weights that it amounts to, of the right configuration.
        parts: functions of the oracle to replace, and properties of the spec.
        releases: where it is a mistake.
    """

    place: int
    name: str
    spec: Callable[[Plamo3Spec], Plamo3Spec] = lambda spec: spec
    weights: Callable[[Plamo3Spec, Weights], Weights] = lambda spec, weights: weights
    parts: Parts | None = None
    kinds: Callable[[Plamo3Spec], tuple[str, ...]] | None = None
    releases: tuple[str, ...] = BOTH

    @contextmanager
    def made(self) -> Iterator[None]:
        """The oracle with the mistake in it."""
        with ExitStack() as stack:
            for name, part in (self.parts or {}).items():
                stack.enter_context(patch.object(reference, name, part))
            if self.kinds is not None:
                stack.enter_context(patch.object(Plamo3Spec, "layer_kinds", property(self.kinds)))
            yield


def site_of(name: str) -> str:
    return name.split(".")[-2]


def added(site: str, amount: float) -> Callable[[Plamo3Spec, Weights], Weights]:
    """`amount` added to the stored weights of one norm site."""

    def change(spec: Plamo3Spec, weights: Weights) -> Weights:
        return {name: w + amount if site_of(name) == site else w for name, w in weights.items()}

    return change


def scaled(site: str, factor: Callable[[Plamo3Spec], float]) -> Callable[[Plamo3Spec, Weights], Weights]:
    """The effective gain of one norm site times a factor."""

    def change(spec: Plamo3Spec, weights: Weights) -> Weights:
        c, f = OFFSETS[site], factor(spec)
        return {name: (w + c) * f - c if site_of(name) == site else w for name, w in weights.items()}

    return change


def both(*changes: Callable[[Plamo3Spec, Weights], Weights]) -> Callable[[Plamo3Spec, Weights], Weights]:
    def change(spec: Plamo3Spec, weights: Weights) -> Weights:
        for one in changes:
            weights = one(spec, weights)
        return weights

    return change


def exchanged(left: str, right: str) -> Callable[[Plamo3Spec, Weights], Weights]:
    """The stored weights of two norm sites exchanged in every block."""

    def change(spec: Plamo3Spec, weights: Weights) -> Weights:
        other = {left: right, right: left}
        return {
            name: weights[name.replace(site_of(name), other.get(site_of(name), site_of(name)))]
            for name in weights
        }

    return change


def rearranged(
    site: str, rows: Callable[[Plamo3Spec], list[int]], axis: int = 0
) -> Callable[[Plamo3Spec, Weights], Weights]:
    """The rows (or columns) of one matrix of every block taken in another order."""

    def change(spec: Plamo3Spec, weights: Weights) -> Weights:
        order = torch.tensor(rows(spec))
        return {
            name: w.index_select(axis, order) if site_of(name) == site else w for name, w in weights.items()
        }

    return change


def of_heads(heads: list[int], d: int) -> list[int]:
    return [head * d + j for head in heads for j in range(d)]


def tiled_heads(spec: Plamo3Spec) -> list[int]:
    """Query heads in the order in which tiling hands them to the key/value heads."""
    kv_heads = spec.num_key_value_heads
    return [group * kv_heads + head for head in range(kv_heads) for group in range(spec.groups)]


def tiled_rows(spec: Plamo3Spec) -> list[int]:
    last = spec.num_attention_heads + 2 * spec.num_key_value_heads
    return of_heads([*tiled_heads(spec), *range(spec.num_attention_heads, last)], spec.head_dim)


def interleaved_rows(spec: Plamo3Spec) -> list[int]:
    """Rows of qkv as a reader takes them who expects each key/value head beside its query heads."""
    kv_heads, groups = spec.num_key_value_heads, spec.groups
    width = groups + 2
    queries = [head * width + group for head in range(kv_heads) for group in range(groups)]
    keys = [head * width + groups for head in range(kv_heads)]
    values = [head * width + groups + 1 for head in range(kv_heads)]
    return of_heads([*queries, *keys, *values], spec.head_dim)


def exchanged_halves(spec: Plamo3Spec) -> list[int]:
    inner = spec.intermediate_size
    return [*range(inner, 2 * inner), *range(inner)]


def scaled_embedding(spec: Plamo3Spec, weights: Weights) -> Weights:
    table = weights["model.embed_tokens.weight"]
    head = table if spec.tie_word_embeddings else weights["lm_head.weight"]
    return {
        **weights,
        "model.embed_tokens.weight": table * math.sqrt(spec.hidden_size),
        "lm_head.weight": head,
    }


def other_span(change: Callable[[int], int | None]) -> Parts:
    right = reference.visible
    return {"visible": lambda segments, span: right(segments, None if span is None else change(span))}


def early_query(segments: Tensor, span: int | None) -> Tensor:
    """Only the first query that the window cuts sees one key too many."""
    seen = RIGHT.visible(segments, span)
    if span is not None:
        seen = seen.clone()
        seen[:, span] = RIGHT.visible(segments, span + 1)[:, span]
    return seen


def first_token_seen(segments: Tensor, span: int | None) -> Tensor:
    seen = RIGHT.visible(segments, span).clone()
    seen[:, :, 0] = True
    return seen


def next_token_seen(segments: Tensor, span: int | None) -> Tensor:
    seen = RIGHT.visible(segments, span)
    return seen | torch.eye(seen.shape[1], dtype=torch.bool).roll(1, dims=1)


class RIGHT:
    """The oracle's own parts, which mistakes wrap."""

    visible = staticmethod(reference.visible)
    rms_norm = staticmethod(reference.rms_norm)
    rotation = staticmethod(reference.rotation)
    inverse_frequencies = staticmethod(reference.inverse_frequencies)


def of_heads_only(x: Tensor) -> bool:
    return x.dim() == 4


def norm_with_eps(change: Callable[[float], float], where: Callable[[Tensor], bool]) -> Parts:
    def norm(x: Tensor, w: Tensor, offset: float, eps: float, casts: reference.Casts) -> Tensor:
        return RIGHT.rms_norm(x, w, offset, change(eps) if where(x) else eps, casts)

    return {"rms_norm": norm}


def eps_outside(x: Tensor, w: Tensor, offset: float, eps: float, casts: reference.Casts) -> Tensor:
    return (w + offset) * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps)


def mean_subtracted(x: Tensor, w: Tensor, offset: float, eps: float, casts: reference.Casts) -> Tensor:
    return RIGHT.rms_norm(x - x.mean(-1, keepdim=True), w, offset, eps, casts)


def head_norms_dropped(x: Tensor, w: Tensor, offset: float, eps: float, casts: reference.Casts) -> Tensor:
    return x if of_heads_only(x) else RIGHT.rms_norm(x, w, offset, eps, casts)


def amplitudes(cos: Callable[[float], float], sin: Callable[[float], float]) -> Parts:
    """cos and sin with another amplitude than the one that they have."""

    def rotation(spec: Plamo3Spec, kind: str, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        right = RIGHT.rotation(spec, kind, positions, dtype)
        amplitude = RIGHT.inverse_frequencies(spec, kind)[1]
        return right[0] / amplitude * cos(amplitude), right[1] / amplitude * sin(amplitude)

    return {"rotation": rotation}


def yarn(
    spec: Plamo3Spec,
    kind: str,
    *,
    edges: Callable[[float, float], tuple[float, float]] = lambda low, high: (low, high),
    factor: Callable[[Plamo3Spec], float] = lambda spec: spec.rope_scaling_factor,
    original: Callable[[Plamo3Spec], float] = lambda spec: spec.initial_context_length,
    everywhere: bool = False,
) -> tuple[Tensor, float]:
    """YaRN's frequencies with one of its ingredients changed, the amplitude kept."""
    plain, _ = RIGHT.inverse_frequencies(replace(spec, rope_scaling_factor=1.0), kind)
    if kind != GLOBAL and not everywhere:
        return plain, 1.0
    pairs = len(plain)
    theta = spec.rope_theta if kind == GLOBAL else spec.rope_local_theta
    low, high = edges(
        *(pairs * math.log(original(spec) / (beta * 2 * math.pi)) / math.log(theta) for beta in (32, 1))
    )
    ramp = ((torch.arange(pairs, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    amplitude = 0.1 * math.log(spec.rope_scaling_factor) + 1
    return plain * (1 - ramp) + plain / factor(spec) * ramp, amplitude


def yarn_with(**changed: Any) -> Parts:
    return {"inverse_frequencies": lambda spec, kind: yarn(spec, kind, **changed)}


def other_kinds(change: Callable[[int, int], bool]) -> Callable[[Plamo3Spec], tuple[str, ...]]:
    """Layer kinds by another rule: is layer i global, with pattern p?"""
    return lambda spec: tuple(
        GLOBAL if change(i, spec.sliding_window_pattern) else LOCAL for i in range(spec.num_hidden_layers)
    )


def other_eps(spec: Plamo3Spec) -> Plamo3Spec:
    return replace(spec, rms_norm_eps=1e-5 if spec.rms_norm_eps == 1e-6 else 1e-6)


MISTAKES = (
    *(Mistake(1, f"offset of {site} forgotten", weights=added(site, -c)) for site, c in OFFSETS.items()),
    *(Mistake(1, f"offset of {site} added twice", weights=added(site, c)) for site, c in OFFSETS.items()),
    Mistake(
        1,
        "offset 1 at every site",
        weights=both(added("post_mixer_norm", 1 - 1 / 5), added("post_mlp_norm", 1 - 5**-1.5)),
    ),
    Mistake(
        1,
        "offsets of post_mixer_norm and post_mlp_norm exchanged",
        weights=both(added("post_mixer_norm", 5**-1.5 - 1 / 5), added("post_mlp_norm", 1 / 5 - 5**-1.5)),
    ),
    Mistake(
        1, "pre_mixer_norm and pre_mlp_norm exchanged", weights=exchanged("pre_mixer_norm", "pre_mlp_norm")
    ),
    Mistake(1, "q_norm and k_norm exchanged", weights=exchanged("q_norm", "k_norm")),
    Mistake(
        2,
        "key/value heads tiled, not repeated",
        weights=both(
            rearranged("qkv_proj", tiled_rows),
            rearranged("o_proj", lambda spec: of_heads(tiled_heads(spec), spec.head_dim), axis=1),
        ),
    ),
    Mistake(
        2,
        "qkv read one key/value head after the other",
        weights=rearranged("qkv_proj", interleaved_rows),
    ),
    Mistake(
        3,
        "scores scaled by D / Hq",
        weights=scaled(
            "q_norm", lambda spec: math.sqrt(spec.head_dim * spec.num_attention_heads / spec.hidden_size)
        ),
    ),
    Mistake(3, "gate and up exchanged", weights=rearranged("gate_up_proj", exchanged_halves)),
    Mistake(
        3,
        "embeddings scaled by sqrt(D)",
        spec=lambda spec: replace(spec, tie_word_embeddings=False),
        weights=scaled_embedding,
    ),
    Mistake(4, "window one token longer", parts=other_span(lambda span: span + 1)),
    Mistake(4, "window one token shorter", parts=other_span(lambda span: span - 1)),
    Mistake(4, "no window", parts=other_span(lambda span: None)),
    Mistake(4, "window on every layer", kinds=other_kinds(lambda i, p: False)),
    Mistake(5, "no q_norm and k_norm", parts={"rms_norm": head_norms_dropped}),
    Mistake(5, "no scale", weights=scaled("q_norm", lambda spec: math.sqrt(spec.head_dim))),
    Mistake(5, "no RoPE", parts={"rotate": lambda x, cos, sin: x}),
    Mistake(5, "no amplitude", parts=amplitudes(lambda right: 1.0, lambda right: 1.0), releases=("2604",)),
    Mistake(6, "logits 0.1 % too large", weights=scaled("norm", lambda spec: 1.001)),
    Mistake(6, "one early query sees one key too many", parts={"visible": early_query}),
    Mistake(
        7,
        "local layers with the global theta",
        spec=lambda spec: replace(spec, rope_local_theta=spec.rope_theta),
    ),
    Mistake(
        7,
        "global layers with the local theta",
        spec=lambda spec: replace(spec, rope_theta=spec.rope_local_theta),
    ),
    Mistake(
        7,
        "thetas exchanged",
        spec=lambda spec: replace(spec, rope_theta=spec.rope_local_theta, rope_local_theta=spec.rope_theta),
    ),
    Mistake(7, "local and global layers exchanged", kinds=other_kinds(lambda i, p: (i + 1) % p != 0)),
    Mistake(7, "layers counted from 1", kinds=other_kinds(lambda i, p: i % p == 0)),
    *(
        Mistake(8, name, parts=parts, releases=("2604",))
        for name, parts in {
            "YaRN range rounded outwards": yarn_with(
                edges=lambda low, high: (math.floor(low), math.ceil(high))
            ),
            "YaRN betas exchanged": yarn_with(edges=lambda low, high: (high, low)),
            "YaRN ignored but for the amplitude": yarn_with(factor=lambda spec: 1.0),
            "YaRN factor from max_position_embeddings / L0": yarn_with(
                factor=lambda spec: spec.max_position_embeddings / spec.initial_context_length
            ),
            "YaRN original length from max_position_embeddings": yarn_with(
                original=lambda spec: spec.max_position_embeddings
            ),
            "YaRN on local layers too": yarn_with(everywhere=True),
            "YaRN amplitude on cos alone": amplitudes(lambda right: right, lambda right: 1.0),
            "YaRN amplitude on sin alone": amplitudes(lambda right: 1.0, lambda right: right),
            "YaRN amplitude twice": amplitudes(lambda right: right**2, lambda right: right**2),
        }.items()
    ),
    Mistake(8, "positions from 1 on the keys' side only", parts={}),
    Mistake(9, "eps 1e-5 for 1e-6, or the reverse", spec=other_eps),
    Mistake(9, "eps outside the root", parts={"rms_norm": eps_outside}),
    Mistake(9, "no eps", parts=norm_with_eps(lambda eps: 0.0, lambda x: True)),
    Mistake(9, "no eps in q_norm and k_norm", parts=norm_with_eps(lambda eps: 0.0, of_heads_only)),
    Mistake(
        9,
        "no eps in the residual norms",
        parts=norm_with_eps(lambda eps: 0.0, lambda x: not of_heads_only(x)),
    ),
    Mistake(9, "mean subtracted", parts={"rms_norm": mean_subtracted}),
    Mistake(10, "uniform attention", weights=scaled("q_norm", lambda spec: 0.0)),
    Mistake(10, "the first token seen by every layer", parts={"visible": first_token_seen}),
    Mistake(10, "the next token seen", parts={"visible": next_token_seen}),
)
