"""The fixed set of golden trials: few, readable, the same for every family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of
from conformance.families.base import Variant
from conformance.feeds import Feed, Forward
from conformance.goldens.store import Golden

__all__ = ["GoldenTrial", "check_fixed_set", "golden_trials"]

WIDTH = 24
SEED = 0


@dataclass(frozen=True)
class GoldenTrial:
    """One trial: its id, the model, and the feed."""

    id: str
    model: Variant
    feed: Feed


def golden_trials() -> Iterator[GoldenTrial]:
    """Every family's golden models, whole and decoded, in FP32 and in BF16."""
    for name in FAMILIES:
        for release, models in family_of(name).golden_models.items():
            for model in models:
                for dtype in ("float32", "bfloat16"):
                    whole = replace(_feed(model.spec.vocab_size), dtype=dtype)
                    decode = whole.token_by_token(model.spec.window_size + 1)
                    for how, feed in (("whole", whole), ("decode", decode)):
                        yield GoldenTrial(f"{name}-{release}-{model.name}-{how}-{dtype}", model, feed)


def check_fixed_set(goldens: Mapping[str, Golden]) -> None:
    """Are these the goldens of the fixed set, all of them and no others?

    Raises:
        BadInput: one is missing, is none of the set, or is of another trial than the set has under its name.
    """
    trials = {trial.id: trial for trial in golden_trials()}
    for name in sorted({*trials, *goldens}):
        if name not in goldens:
            raise BadInput(f"golden {name} is missing: it is in the fixed set, but was not recorded")
        if name not in trials:
            raise BadInput(f"golden {name} is unused: it was recorded, but is not in the fixed set")
        golden, trial = goldens[name], trials[name]
        pairs = {
            "spec": (golden.spec, trial.model.spec),
            "seed": (golden.seed, SEED),
            "layout": (golden.layout, trial.model.layout),
            "feed": (golden.feed, trial.feed),
        }
        stale = [key for key, (got, want) in pairs.items() if got != want]
        if stale:
            raise BadInput(f"golden {name} is stale: the fixed set has another {' and '.join(stale)} now")


def _feed(vocabulary: int) -> Feed:
    """One row of tokens that anyone can write down: 7 + 11 t + t * t, modulo the vocabulary."""
    return Feed(
        tokens=(tuple((7 + 11 * t + t * t) % vocabulary for t in range(WIDTH)),),
        steps=(Forward(WIDTH),),
    )
