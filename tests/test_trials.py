"""Trials: the same arguments give the same trials, within a backend's limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from conformance.case import Case, case
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint
from conformance.claims import Plan
from conformance.errors import BadInput
from conformance.families.base import Spec, Variant
from conformance.limits import violation
from conformance.strategies import feeds
from conformance.trials import deal, draw, models

LIMITS = {"head_dim": {"one_of": [24]}, "hidden_size": {"max": 80}}


def law(**how: Any) -> Case:
    how = {"draws": lambda spec: feeds(spec, min_width=5, max_width=9), "law": "a law", **how}
    return case("chapter/law", **how)(lambda trial: Plan((), ()))


class TestDraw:
    def test_equal_strategies_give_equal_examples(self) -> None:
        numbers = st.lists(st.integers(0, 1000), min_size=3)
        assert draw(numbers, 4) == draw(st.lists(st.integers(0, 1000), min_size=3), 4)

    def test_it_does_not_depend_on_what_was_drawn_before(self) -> None:
        numbers = st.integers(0, 10**9)
        first = draw(numbers, 2)
        draw(st.text(), 5)
        assert draw(numbers, 2) == first

    def test_as_many_as_asked_for_and_no_more(self) -> None:
        assert len(draw(st.integers(0, 10**9), 5)) == 5

    def test_the_simplest_example_is_left_out(self) -> None:
        assert 0 not in draw(st.integers(0, 10**9), 5)

    def test_unless_there_is_no_other(self) -> None:
        assert draw(st.just("only"), 3) == ["only"]


class TestModels:
    def test_equal_arguments_give_equal_models(self) -> None:
        first = models("plamo3", "2604", LIMITS, 2)
        assert models("plamo3", "2604", dict(reversed(LIMITS.items())), 2) == first
        assert len(first) == 2

    def test_within_the_limits(self) -> None:
        for release in ("2604", "4k"):
            for spec, _ in models("plamo3", release, LIMITS, 4):
                assert violation(spec.to_dict(), LIMITS) is None
                assert spec.release == release

    def test_limits_that_nothing_meets(self) -> None:
        with pytest.raises(BadInput) as caught:
            models("plamo3", "2604", {"head_dim": {"max": 3}}, 1)
        assert str(caught.value) == (
            "limits.head_dim = {'max': 3}, but should be met by at least one tiny model"
        )


class TestDeal:
    def test_the_same_trials_every_time(self) -> None:
        assert deal(law(), "plamo3", "2604", {}, 3) == deal(law(), "plamo3", "2604", {}, 3)

    def test_every_case_is_dealt_the_same_models(self) -> None:
        long = law(draws=lambda spec: feeds(spec, min_width=30, max_width=40))
        mine = deal(law(), "plamo3", "4k", {}, 3)
        theirs = deal(long, "plamo3", "4k", {}, 3)
        assert [(t.spec, t.seed) for t in mine] == [(t.spec, t.seed) for t in theirs]
        assert {t.release for t in mine} == {"4k"}

    def test_feeds_are_drawn_for_the_model(self) -> None:
        for trial in deal(law(), "plamo3", "2604", LIMITS, 3):
            assert max(map(max, trial.drawn.tokens)) < trial.spec.vocab_size
            assert 5 <= trial.drawn.width <= 9

    def test_fixed_models_replace_drawn_ones(self, spec: Spec) -> None:
        fixed = law(fixed=lambda family, release: (Variant("small", spec, Layout(recipe="fresh")),))
        (trial,) = deal(fixed, "plamo3", "2604", {}, 5)
        assert (trial.spec, trial.seed, trial.layout.recipe) == (spec, 0, "fresh")

    def test_variants_of_a_model_keep_its_seed_and_the_limits(self) -> None:
        def both(spec: Spec) -> tuple[Variant, ...]:
            stored = Variant("stored in BF16", spec, Layout(dtype="bfloat16"))
            wide = Variant("wide heads", replace(spec, head_dim=32), Layout())  # type: ignore[type-var]
            return stored, wide

        trials = deal(law(variants=both), "plamo3", "2604", {}, 4)
        assert [t.layout.dtype for t in trials] == ["bfloat16", "float32"] * 2
        assert trials[0].seed == trials[1].seed != trials[2].seed
        limited = deal(law(variants=both), "plamo3", "2604", LIMITS, 4)
        assert [t.layout.dtype for t in limited] == ["bfloat16"] * 2

    def test_a_brought_checkpoint_is_the_only_model(self, checkpoint: Checkpoint) -> None:
        trials = deal(law(), "plamo3", "2604", {}, 3, checkpoint)
        assert len(trials) == 3
        assert {t.spec for t in trials} == {checkpoint.spec}
        assert len({t.drawn for t in trials}) == 3
