"""How far the logits of drawn models move when something is wrong, in units of their noise.

``python -m tests.families.plamo3.sensitivity`` prints the tables of docs/checkpoints.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.compare.noise import measure
from conformance.families import family_of
from conformance.families.plamo3 import faults
from conformance.families.plamo3.reference import forward
from conformance.families.plamo3.spec import RELEASES, Plamo3Spec
from conformance.families.plamo3.symmetries import relabel
from conformance.families.plamo3.weights import tiny_weights
from conformance.faults import find
from conformance.feeds import Feed
from conformance.strategies import feeds
from conformance.trials import draw, models

_SITES = ("pre-mixer", "post-mixer", "pre-mlp", "post-mlp", "q", "k", "final")


@dataclass(frozen=True)
class HidingPlace:
    """A way in which a tiny model hides mistakes, and mistakes of the fault bank that it would hide."""

    name: str
    faults: tuple[str, ...]


HIDING_PLACES = {
    1: HidingPlace(
        "norm weights of zero",
        (
            *(f"offset-forgotten-{site}" for site in _SITES),
            *(f"offset-twice-{site}" for site in _SITES),
            "offset-one-everywhere",
            "offset-one-post-mixer",
            "offset-one-post-mlp",
            "offset-fifth-both-posts",
            "offset-posts-exchanged",
            "head-gains-exchanged",
        ),
    ),
    2: HidingPlace(
        "one key/value head, or one for each query head",
        ("gqa-tiled", "qkv-interleaved", "q-norm-all-heads", "k-norm-all-heads"),
    ),
    3: HidingPlace(
        "square or related dimensions",
        (
            "scale-from-hidden-size",
            "embedding-scaled",
            "gate-up-exchanged",
            "gate-up-interleaved",
            "qkv-value-before-key",
        ),
    ),
    4: HidingPlace(
        "sequences inside the window",
        (
            "window-one-long",
            "window-one-short",
            "window-missing",
            "window-on-global-layers",
            "window-one-long-in-decode",
            "window-one-short-in-decode",
            "window-missing-in-decode",
            "cache-one-short",
            "ring-slot-one-late",
        ),
    ),
    5: HidingPlace(
        "position 0 alone",
        (
            "q-norm-missing",
            "k-norm-missing",
            "qk-norm-after-rope",
            "scale-missing",
            "rope-missing",
            "rope-interleaved",
            "amplitude-missing",
        ),
    ),
    6: HidingPlace(
        "the top token or the last position alone",
        ("logits-normalised", "matmul-tf32", "cache-float16"),
    ),
    7: HidingPlace(
        "equal thetas, or default ones",
        (
            "theta-local-is-global",
            "theta-global-is-local",
            "thetas-exchanged",
            "theta-local-defaulted",
            "theta-global-defaulted",
            "layers-exchanged",
            "pattern-one-late",
            "pattern-one-early",
        ),
    ),
    8: HidingPlace(
        "the first few positions",
        (
            "yarn-missing",
            "yarn-on-local-too",
            "yarn-factor-from-lengths",
            "yarn-length-is-maximum",
            "yarn-length-is-scaled",
            "yarn-range-rounded",
            "yarn-range-in-dimensions",
            "yarn-betas-exchanged",
            "yarn-ramp-missing-scaled",
            "yarn-ramp-missing-unscaled",
            "yarn-as-linear",
            "amplitude-on-cos-only",
            "amplitude-on-sin-only",
            "amplitude-twice",
            "amplitude-on-queries-only",
            "amplitude-on-local-too",
            "rope-frequencies-in-bfloat16",
            "rope-angles-in-bfloat16",
        ),
    ),
    9: HidingPlace(
        "activations of unit variance",
        (
            "eps-1e-5",
            "eps-1e-6",
            "eps-missing",
            "head-eps-1e-5",
            "head-eps-missing",
            "eps-outside-root",
            "norm-mean-subtracted",
            "head-norm-mean-subtracted",
        ),
    ),
    10: HidingPlace(
        "uniform attention",
        ("mask-missing", "mask-one-ahead", "scale-twice", "layers-all-local", "layers-all-global"),
    ),
}


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

    spec: Plamo3Spec
    weights: Mapping[str, Tensor]
    feed: Feed
    exact: np.ndarray
    noise: np.ndarray

    def moved(self, logits: np.ndarray) -> np.ndarray:
        """[T]: the largest distance of a position's logits from the exact ones, in units of its noise.

        The logits may be those of the first positions only.
        """
        exact, noise = self.exact[: len(logits)], self.noise[: len(logits)]
        return np.asarray(np.abs(logits.astype(np.float64) - exact).max(axis=-1) / noise)

    def with_weights(self, weights: Mapping[str, Tensor]) -> np.ndarray:
        """float32 [T, V]: the oracle's logits for other weights."""
        return _oracle(self.spec, weights, self.feed)

    def with_fault(self, fault_id: str | None) -> np.ndarray | None:
        """float32 [T, V]: logits of an implementation with this fault, or None where it cannot show.

        Without a fault, those of the deviating model that does not deviate.
        """
        if fault_id is None:
            return self.with_changes({}, self.feed)
        fault = find(faults.FAULTS, fault_id)
        # From before the window until a ring of W has gone round twice.
        decoded = self.feed.first(3 * self.spec.window_size + 2).token_by_token(2)
        for feed in (self.feed, decoded):
            if fault.applies(self.spec, feed):
                return self.with_changes(fault.changes, feed)
        return None

    def with_changes(self, changes: Mapping[str, object], feed: Feed) -> np.ndarray:
        """float32 [T, V]: logits of the deviating model with some knobs changed, on its way of feeding."""
        arranged = faults.arrange(self.spec, self.weights, changes)
        return np.asarray(faults.run(self.spec, arranged, feed, changes)[0])


def subjects(release: str, count: int) -> Iterator[Subject]:
    """The first models that the cases draw, each with the text of `reference/whole`."""
    for spec, seed in models("plamo3", release, {}, count):
        assert isinstance(spec, Plamo3Spec)
        window = spec.window_size
        feed = draw(feeds(spec, min_width=4 * window, max_width=8 * window), 1)[0]
        yield subject(spec, seed, feed)


def subject(spec: Plamo3Spec, seed: int, feed: Feed) -> Subject:
    """One model and one text, its noise measured over the family's evaluation orders."""
    weights = {name: torch.from_numpy(w) for name, w in tiny_weights(spec, seed).items()}
    exact = _oracle(spec, {name: w.double() for name, w in weights.items()}, feed)
    evaluations = [_oracle(spec, weights, feed)]
    for order in family_of("plamo3").orders["float32"]:
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
    return ".".join(parts[4:] if parts[:3] == ["model", "layers", "layers"] else parts)


def tensor_sensitivity(of: Subject) -> dict[str, float]:
    """Parameter name → how far the logits move when it is disturbed: the largest over positions."""
    return {
        name: float(of.moved(of.with_weights({**of.weights, name: disturbed(w)})).max())
        for name, w in of.weights.items()
    }


def fault_sensitivity(of: Subject) -> dict[tuple[int, str], float]:
    """(Hiding place, fault) → how far the logits move, for every fault that can show here."""
    found = {}
    for number, place in HIDING_PLACES.items():
        for fault_id in place.faults:
            logits = of.with_fault(fault_id)
            if logits is not None:
                found[number, fault_id] = float(of.moved(logits).max())
    return found


def _oracle(spec: Plamo3Spec, weights: Mapping[str, Tensor], feed: Feed) -> np.ndarray:
    tokens = torch.tensor(feed.tokens)
    positions = torch.arange(feed.width)[None]
    with torch.inference_mode():
        return np.asarray(forward(spec, weights, tokens, positions, torch.zeros_like(tokens))[0])


def print_tables(count: int, *, every: bool) -> None:
    """The least movement over `count` models of each release, as Markdown."""
    tensors: dict[str, list[float]] = {}
    mistakes: dict[tuple[int, str], list[float]] = {}
    for one in (one for release in RELEASES for one in subjects(release, count)):
        for name, ratio in tensor_sensitivity(one).items():
            tensors.setdefault(site_of(name), []).append(ratio)
        for mistake, ratio in fault_sensitivity(one).items():
            mistakes.setdefault(mistake, []).append(ratio)
    print("| tensor | disturbed | least | median |\n|---|---|---|---|")
    for site, ratios in tensors.items():
        print(f"| `{site}` | {len(ratios)} | {min(ratios):,.0f} | {np.median(ratios):,.0f} |")
    print("\n| hiding place | mistakes | runs | least | of which | median |\n|---|---|---|---|---|---|")
    for number, place in HIDING_PLACES.items():
        its = {fault_id: ratios for (where, fault_id), ratios in mistakes.items() if where == number}
        for group in [{fault_id: ratios} for fault_id, ratios in its.items()] if every else [its]:
            ratios = [ratio for ratios in group.values() for ratio in ratios]
            least = min(group, key=lambda fault_id: min(group[fault_id]))
            print(
                f"| {number} {place.name} | {len(group)} | {len(ratios)} | {min(ratios):,.0f} | `{least}` "
                f"| {np.median(ratios):,.0f} |"
            )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="how far logits move when something is wrong")
    parser.add_argument("--models", type=int, default=8, help="models of each release (default 8)")
    parser.add_argument("--every", action="store_true", help="a line for every mistake")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print_tables(options.models, every=options.every)


if __name__ == "__main__":
    main()
