"""Trials: hypothesis draws models and feeds.

Models are drawn once for each (family, release, limits) and dealt to every case, because loading a
model costs an engine far more than running a feed; feeds are drawn for each case and model. Nothing
here depends on anything but its arguments: the same session draws the same trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.case import Case, Trial
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint
from conformance.families import family_of
from conformance.families.base import Spec, Variant
from conformance.limits import violation

__all__ = ["deal", "draw", "models"]

T = TypeVar("T")


def draw(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """`count` examples that hypothesis generates, the simplest one left out.

    Derandomised: equal strategies give equal examples. Fewer come back where a strategy has fewer.
    """
    examples: list[T] = []

    @settings(
        max_examples=count + 1,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        examples.append(example)

    collect()
    return examples[1 : count + 1] or examples[:1]


def models(
    family: str, release: str, limits: Mapping[str, Any], count: int, **kind: Any
) -> tuple[tuple[Spec, int], ...]:
    """`count` models of a release within a backend's limits, as (spec, seed)."""
    return _models(
        family, release, json.dumps(limits, sort_keys=True), count, json.dumps(kind, sort_keys=True)
    )


@cache
def _models(family: str, release: str, limits: str, count: int, kind: str) -> tuple[tuple[Spec, int], ...]:
    specs = family_of(family).specs(release, json.loads(limits), **json.loads(kind))
    return tuple(draw(st.tuples(specs, st.integers(0, 2**16 - 1)), count))


def deal(
    case: Case,
    family: str,
    release: str,
    limits: Mapping[str, Any],
    count: int,
    brought: Checkpoint | None = None,
) -> list[Trial]:
    """The trials of one case: one feed on each of `count` models, or on the user's checkpoint."""
    if brought is not None:
        return [Trial(brought.spec, 0, drawn) for drawn in draw(case.draws(brought.spec), count)]
    if case.fixed is not None:
        return [_trial(case, variant, 0) for variant in case.fixed(family, release)]
    drawn = models(family, release, limits, count, **case.specs)
    if case.variants is None:
        return [_trial(case, Variant("", spec, Layout()), seed) for spec, seed in drawn]
    # A model in all its variants is many models to load: as many models as others, half as often.
    halved = drawn[: max(1, count // 2)]
    return [_trial(case, variant, seed) for spec, seed in halved for variant in _kept(case, spec, limits)]


def _kept(case: Case, spec: Spec, limits: Mapping[str, Any]) -> list[Variant]:
    assert case.variants is not None
    return [variant for variant in case.variants(spec) if violation(variant.spec.to_dict(), limits) is None]


def _trial(case: Case, variant: Variant, seed: int) -> Trial:
    return Trial(variant.spec, seed, draw(case.draws(variant.spec), 1)[0], variant.layout, variant.name)
