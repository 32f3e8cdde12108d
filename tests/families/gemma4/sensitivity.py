"""How far the logits of drawn models move when something is wrong, in units of their noise.

``python -m tests.families.gemma4.sensitivity`` prints the tables. Mistakes are made by other weights, by
another spec, by other positions, or by another function in the oracle's place.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from conformance.compare.noise import measure
from conformance.families import family_of
from conformance.families.base import GLOBAL
from conformance.families.gemma4 import reference
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.gemma4.symmetries import relabel
from conformance.families.gemma4.weights import tiny_weights
from conformance.feeds import Feed
from conformance.strategies import feeds
from conformance.trials import draw, models

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Subject:
    """A model that the cases draw, and a text that they feed to it.

    Attributes:
        spec: the model's configuration.
        weights: its weights in float32.
        feed: one row of 4 to 8 times W tokens, whole.
        exact: float64 [T, V], the oracle's logits.
        noise: float64 [T], how far correct FP32 evaluations are from them.
    """

    spec: Gemma4Spec
    weights: Weights
    feed: Feed
    exact: np.ndarray
    noise: np.ndarray

    def moved(self, logits: np.ndarray) -> np.ndarray:
        """[T]: the largest distance of a position's logits from the exact ones, in units of its noise."""
        return np.asarray(np.abs(logits.astype(np.float64) - self.exact).max(axis=-1) / self.noise)

    def run(
        self,
        *,
        weights: Weights | None = None,
        spec: Gemma4Spec | None = None,
        positions: Tensor | None = None,
        **functions: Any,
    ) -> np.ndarray:
        """float32 [T, V]: the oracle's logits with something else in some place."""
        with mock.patch.multiple(reference, **functions) if functions else nullcontext():
            return _oracle(spec or self.spec, weights or self.weights, self.feed, positions)

    def edited(self, edit: Callable[[str, Tensor], Tensor]) -> np.ndarray:
        """float32 [T, V]: logits with every tensor edited by its name."""
        return self.run(weights={name: edit(name, w) for name, w in self.weights.items()})


def subjects(count: int) -> Iterator[Subject]:
    """The first models that the cases draw, each with the text of `reference/whole`."""
    for spec, seed in models("gemma4", "gemma-4", {}, count):
        assert isinstance(spec, Gemma4Spec)
        window = spec.window_size
        yield subject(spec, seed, draw(feeds(spec, min_width=4 * window, max_width=8 * window), 1)[0])


def subject(spec: Gemma4Spec, seed: int, feed: Feed, recipe: str = "telling") -> Subject:
    """One model and one text, its noise measured over the family's evaluation orders."""
    weights = {name: torch.from_numpy(w) for name, w in tiny_weights(spec, seed, recipe).items()}
    exact = _oracle(spec, {name: w.double() for name, w in weights.items()}, feed)
    evaluations = [_oracle(spec, weights, feed)]
    for order in family_of("gemma4").orders["float32"]:
        kind, _, argument = order.partition(":")
        assert kind == "relabel"
        evaluations.append(_oracle(spec, relabel(spec, weights, int(argument)), feed))
    return Subject(spec, weights, feed, exact, measure(exact, evaluations, "float32").noise)


def disturbed(w: Tensor) -> Tensor:
    """Every second row of a matrix, or entry of a vector, one step of BF16 further from zero.

    What rounding a tensor once more may do to it, and the least that can be wrong with a stored value.
    All rows alike would not do: the norm that follows most matrices undoes a common factor.
    """
    w = w.clone()
    steps = w[::2].contiguous().view(torch.int32) + 0x10000
    w[::2] = steps.view(torch.float32)
    return w


def site_of(name: str) -> str:
    """The parameter's name without its layer."""
    parts = name.removesuffix(".weight").split(".")
    return ".".join(parts[3:] if parts[:2] == ["model", "layers"] else parts[1:])


def tensor_sensitivity(of: Subject) -> dict[str, float]:
    """Parameter name → how far the logits move when it is disturbed: the largest over positions."""
    return {
        name: float(of.moved(of.run(weights={**of.weights, name: disturbed(w)})).max())
        for name, w in of.weights.items()
    }


def _gain_one_more(site: str) -> Callable[[Subject], np.ndarray]:
    return lambda of: of.edited(lambda name, w: w + 1 if name.endswith(f"{site}.weight") else w)


def _exchanged(one: str, other: str) -> Callable[[Subject], np.ndarray]:
    """Tensors of two sites in each other's place."""

    def run(of: Subject) -> np.ndarray:
        def edit(name: str, w: Tensor) -> Tensor:
            for mine, theirs in ((one, other), (other, one)):
                if name.endswith(f"{mine}.weight"):
                    return of.weights.get(name.replace(mine, theirs), w)
            return w

        return of.edited(edit)

    return run


def _scaled_scores(of: Subject) -> np.ndarray:
    return of.edited(lambda name, w: w / math.sqrt(len(w)) if name.endswith("q_norm.weight") else w)


def _tiled(of: Subject) -> np.ndarray:
    """Query head h takes key/value head h mod K, which is what other rows of q_proj and o_proj would do."""

    def edit(name: str, w: Tensor) -> Tensor:
        if not name.endswith(("q_proj.weight", "o_proj.weight")):
            return w
        kv_heads, d = of.spec.heads(of.spec.layer_kinds[int(name.split(".")[2])])
        heads = of.spec.num_attention_heads
        order = torch.arange(heads).view(-1, kv_heads).T.flatten()
        rows = (order[:, None] * d + torch.arange(d)).flatten()
        return w[rows] if name.endswith("q_proj.weight") else w[:, rows]

    return of.edited(edit)


def _scalars_of_1(last: bool) -> Callable[[Subject], np.ndarray]:
    """The last layer's scalar, or all the others."""

    def run(of: Subject) -> np.ndarray:
        final = f"model.layers.{of.spec.num_hidden_layers - 1}.layer_scalar"
        mine = {n for n in of.weights if n.endswith("layer_scalar") and (n == final) == last}
        return of.edited(lambda name, w: torch.ones_like(w) if name in mine else w)

    return run


def _with(**changed: Any) -> Callable[[Subject], np.ndarray]:
    """Another value of a field of the spec, or a function of the spec for it."""
    return lambda of: of.run(
        spec=replace(of.spec, **{n: v(of.spec) if callable(v) else v for n, v in changed.items()})
    )


def _eps(factor: float, *, heads_only: bool = False) -> Callable[[Subject], np.ndarray]:
    plain = reference.rms_norm

    def run(of: Subject) -> np.ndarray:
        def norm(x: Tensor, w: Tensor | None, eps: float) -> Tensor:
            return plain(x, w, eps * factor if not heads_only or x.ndim == 4 else eps)

        return of.run(rms_norm=norm)

    return run


def _mean_subtracted(of: Subject) -> np.ndarray:
    plain = reference.rms_norm
    return of.run(rms_norm=lambda x, w, eps: plain(x - x.mean(-1, keepdim=True), w, eps))


def _values(normed: bool, gain: bool) -> Callable[[Subject], np.ndarray]:
    """Values of global layers from the normalised K, or values with the gain of K."""
    plain = reference.keys_and_values

    def run(of: Subject) -> np.ndarray:
        def other(spec: Gemma4Spec, kind: str, block: Weights, *rest: Any) -> tuple[Tensor, Tensor]:
            k, v = plain(spec, kind, block, *rest)
            w = block["self_attn.k_norm.weight"]
            if normed and kind == GLOBAL:
                return k, reference.rms_norm(v * w, None, spec.rms_norm_eps)
            return k, v * w if gain else v

        return of.run(keys_and_values=other)

    return run


def _frequencies(of: Subject) -> np.ndarray:
    """The number of components that turn in the exponent, in place of the head size."""
    plain = reference.inverse_frequencies

    def other(spec: Gemma4Spec, kind: str) -> Tensor:
        turns = plain(spec, kind)
        if kind == GLOBAL:
            r = spec.rotated_pairs
            turns[:r] = spec.rope_theta ** (-torch.arange(r, dtype=torch.float64) / r)
        return turns

    return of.run(inverse_frequencies=other)


def _paired_inside(of: Subject) -> np.ndarray:
    """Global pairs (j, j + r) among the first 2r components."""
    plain = reference.rotate

    def other(x: Tensor, cos: Tensor, sin: Tensor, casts: reference.Casts) -> Tensor:
        r = of.spec.rotated_pairs
        if x.shape[-1] != of.spec.global_head_dim:
            return plain(x, cos, sin, casts)
        turn = [torch.cat([t[..., :r], t[..., :r]], dim=-1) for t in (cos, sin)]
        return torch.cat([plain(x[..., : 2 * r], *turn, casts), x[..., 2 * r :]], dim=-1)

    return of.run(rotate=other)


def _mask(change: Callable[[Tensor, int | None], Tensor]) -> Callable[[Subject], np.ndarray]:
    return lambda of: of.run(visible=change)


def _positions(change: Callable[[Tensor], Tensor]) -> Callable[[Subject], np.ndarray]:
    return lambda of: of.run(positions=change(torch.arange(of.feed.width)[None]))


def _kinds_one_early(of: Subject) -> np.ndarray:
    """Local layers behind global ones in their window and theta, as the shapes allow no more."""
    spec = of.spec
    return of.run(spec=replace(spec, window_size=4096, rope_local_theta=spec.rope_theta))


_plain_visible = reference.visible
_SITES = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "q_norm",
    "k_norm",
    "model.norm",
)

# Number and name of a hiding place → mistakes that it would hide.
MISTAKES: dict[tuple[int, str], dict[str, Callable[[Subject], np.ndarray]]] = {
    (1, "gains and scalars of 1"): {
        **{f"1 + w in {site}": _gain_one_more(site) for site in _SITES},
        "input and pre-feedforward gains exchanged": _exchanged(
            "input_layernorm", "pre_feedforward_layernorm"
        ),
        "post gains exchanged": _exchanged("post_attention_layernorm", "post_feedforward_layernorm"),
        "q and k gains exchanged": _exchanged("q_norm", "k_norm"),
        "layer scalars left out": _scalars_of_1(last=False),
        "last layer scalar left out": _scalars_of_1(last=True),
        "V with a gain": _values(normed=False, gain=True),
        "V from normalised K": _values(normed=True, gain=False),
    },
    (2, "one key/value head, or one for each query head"): {"heads tiled": _tiled},
    (3, "square or related dimensions"): {"gate and up exchanged": _exchanged("gate_proj", "up_proj")},
    (4, "sequences inside the window"): {
        "one key more": _with(window_size=lambda spec: spec.window_size + 1),
        "one key fewer": _with(window_size=lambda spec: spec.window_size - 1),
        "no window": _with(window_size=4096),
        "window on global layers": _mask(lambda segments, span: _plain_visible(segments, span or 5)),
    },
    (5, "position 0 alone"): {
        "scores scaled": _scaled_scores,
        "no RoPE": _positions(torch.zeros_like),
        "positions one apart become two": _positions(lambda p: 2 * p),
    },
    (6, "the top token alone"): {
        "no softcap": _with(final_logit_softcapping=1e9),
        "softcap of another model": _with(final_logit_softcapping=50.0),
    },
    (7, "equal thetas, or default ones"): {
        "thetas exchanged": _with(
            rope_local_theta=lambda spec: spec.rope_theta, rope_theta=lambda spec: spec.rope_local_theta
        ),
        "local theta everywhere": _with(rope_theta=lambda spec: spec.rope_local_theta),
        "global theta everywhere": _with(rope_local_theta=lambda spec: spec.rope_theta),
        "local layers as global ones": _kinds_one_early,
    },
    (8, "the first few positions"): {
        "every pair turns": _with(partial_rotary_factor=1.0),
        "turning components in the exponent": _frequencies,
        "pairs inside the turning components": _paired_inside,
    },
    (9, "activations of unit variance"): {
        "eps ten times": _eps(10.0),
        "no eps": _eps(0.0),
        "eps ten times in heads": _eps(10.0, heads_only=True),
        "no eps in heads": _eps(0.0, heads_only=True),
        "mean subtracted": _mean_subtracted,
    },
    (10, "uniform attention"): {
        "no mask": _mask(lambda segments, span: torch.ones_like(_plain_visible(segments, span))),
        "one key ahead": _mask(
            lambda segments, span: (
                _plain_visible(segments, span)
                | torch.diag(torch.ones(segments.shape[1] - 1, dtype=torch.bool), 1)
            )
        ),
    },
}


def _oracle(spec: Gemma4Spec, weights: Weights, feed: Feed, positions: Tensor | None = None) -> np.ndarray:
    tokens = torch.tensor(feed.tokens)
    places = torch.arange(feed.width)[None] if positions is None else positions
    with torch.inference_mode():
        return np.asarray(reference.forward(spec, weights, tokens, places, torch.zeros_like(tokens))[0])


def mistake_sensitivity(of: Subject) -> dict[tuple[int, str], float]:
    """(Hiding place, mistake) → how far the logits move: the largest over positions."""
    return {
        (number, name): float(of.moved(run(of)).max())
        for (number, _), mistakes in MISTAKES.items()
        for name, run in mistakes.items()
    }


def print_tables(count: int) -> None:
    """The least movement over `count` models, as Markdown."""
    tensors: dict[str, list[float]] = {}
    mistakes: dict[tuple[int, str], list[float]] = {}
    for one in subjects(count):
        for name, ratio in tensor_sensitivity(one).items():
            tensors.setdefault(site_of(name), []).append(ratio)
        for mistake, ratio in mistake_sensitivity(one).items():
            mistakes.setdefault(mistake, []).append(ratio)
    print("| tensor | disturbed | least | median |\n|---|---|---|---|")
    for site, ratios in tensors.items():
        print(f"| `{site}` | {len(ratios)} | {min(ratios):,.0f} | {np.median(ratios):,.0f} |")
    print("\n| hiding place | mistake | least | median |\n|---|---|---|---|")
    for (number, name), ratios in mistakes.items():
        print(f"| {number} | {name} | {min(ratios):,.0f} | {np.median(ratios):,.0f} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="how far logits move when something is wrong")
    parser.add_argument("--models", type=int, default=8, help="models (default 8)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print_tables(options.models)


if __name__ == "__main__":
    main()
