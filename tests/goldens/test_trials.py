"""The fixed set: which goldens there are, that they are readable, and that a directory holds just these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from conformance.checkpoints.layout import Layout
from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of
from conformance.goldens.store import Golden
from conformance.goldens.trials import SEED, check_fixed_set, golden_trials

TRIALS = {trial.id: trial for trial in golden_trials()}


def test_the_set() -> None:
    assert list(TRIALS) == [
        f"{release}-{model}-{how}-{dtype}"
        for release, models in (
            ("plamo3-2604", ("telling", "small")),
            ("plamo3-4k", ("telling", "small")),
            ("gemma4-gemma-4", ("telling", "sharing")),
        )
        for model in models
        for dtype in ("float32", "bfloat16")
        for how in ("whole", "decode")
    ]


def test_every_release_of_every_family_is_in_it() -> None:
    releases = {(name, release.name) for name in FAMILIES for release in family_of(name).releases}
    assert {(t.model.spec.family, t.model.spec.release) for t in TRIALS.values()} == releases


@pytest.mark.parametrize("release", ["2604", "4k"])
def test_the_published_small_model_is_in_it(release: str) -> None:
    """docs/plamo3.md §9: fresh weights, 8 layers, D 48, d 16, W 4."""
    trial = TRIALS[f"plamo3-{release}-small-whole-float32"]
    assert trial.model.spec == family_of("plamo3").published[release].spec
    assert trial.model.layout == Layout(recipe="fresh")
    assert trial.feed.width > family_of("plamo3").published[release].width


@pytest.mark.parametrize("name", TRIALS)
def test_an_id_says_what_it_is(name: str) -> None:
    trial = TRIALS[name]
    which, _, how, dtype = name.rsplit("-", 3)
    assert f"{trial.model.spec.family}-{trial.model.spec.release}" == which
    assert trial.feed.dtype == dtype
    window = trial.model.spec.window_size
    chunks = {"whole": (24,), "decode": (window + 1, *[1] * (23 - window))}
    assert trial.feed.chunks == chunks[how]


@pytest.mark.parametrize("name", TRIALS)
def test_a_feed_can_be_written_down_by_hand(name: str) -> None:
    trial = TRIALS[name]
    (tokens,) = trial.feed.tokens
    assert tokens == tuple((7 + 11 * t + t * t) % trial.model.spec.vocab_size for t in range(24))
    assert len(set(tokens)) >= 18
    assert trial.feed.requires <= {"decode"}


@pytest.mark.parametrize("name", TRIALS)
def test_a_feed_goes_round_the_window_more_than_twice(name: str) -> None:
    trial = TRIALS[name]
    assert trial.feed.width > 3 * trial.model.spec.window_span
    assert set(trial.model.spec.layer_kinds) == {"local", "global"}


# A directory's goldens against it


def fixed_set() -> dict[str, Golden]:
    return {
        trial.id: Golden(
            id=trial.id,
            spec=trial.model.spec,
            seed=SEED,
            layout=trial.model.layout,
            weights="",
            feed=trial.feed,
            logits=np.zeros((1, 24, trial.model.spec.vocab_size), np.float32),
            producer={},
            command="",
            agreed=(),
        )
        for trial in TRIALS.values()
    }


def test_the_fixed_set_is_what_it_is() -> None:
    check_fixed_set(fixed_set())


ONE, OTHER = "plamo3-4k-telling-whole-float32", "plamo3-4k-telling-decode-bfloat16"


def without(goldens: dict[str, Golden]) -> None:
    del goldens[ONE]


def with_one_more(goldens: dict[str, Golden]) -> None:
    goldens["plamo3-4k-large"] = goldens[ONE]


def exchanged(goldens: dict[str, Golden]) -> None:
    goldens[ONE] = goldens[OTHER]


def of_another_seed(goldens: dict[str, Golden]) -> None:
    goldens[ONE] = replace(goldens[ONE], seed=1)


def of_another_model(goldens: dict[str, Golden]) -> None:
    spec = goldens["plamo3-4k-small-whole-float32"].spec
    goldens[ONE] = replace(goldens[ONE], spec=spec, layout=Layout(recipe="fresh"))


WRONG: dict[str, tuple[Callable[[dict[str, Golden]], None], str]] = {
    "one missing": (without, f"golden {ONE} is missing: it is in the fixed set, but was not recorded"),
    "one more": (
        with_one_more,
        "golden plamo3-4k-large is unused: it was recorded, but is not in the fixed set",
    ),
    "another feed": (exchanged, f"golden {ONE} is stale: the fixed set has another feed now"),
    "another seed": (of_another_seed, f"golden {ONE} is stale: the fixed set has another seed now"),
    "another model": (
        of_another_model,
        f"golden {ONE} is stale: the fixed set has another spec and layout now",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_the_fixed_set_is_named(name: str) -> None:
    change, message = WRONG[name]
    goldens = fixed_set()
    change(goldens)
    with pytest.raises(BadInput) as caught:
        check_fixed_set(goldens)
    assert str(caught.value) == message
