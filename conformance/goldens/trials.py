"""The fixed set of golden trials: few, readable, the same for every family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.families import FAMILIES, family_of
from conformance.families.base import Variant
from conformance.feeds import Feed, Forward

__all__ = ["GoldenTrial", "golden_trials"]

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


def _feed(vocabulary: int) -> Feed:
    """One row of tokens that anyone can write down: 7 + 11 t + t * t, modulo the vocabulary."""
    return Feed(
        tokens=(tuple((7 + 11 * t + t * t) % vocabulary for t in range(WIDTH)),),
        steps=(Forward(WIDTH),),
    )
