from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL
from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.spec import RELEASES, Plamo3Spec
from conformance.families.plamo3.strategies import specs
from conformance.limits import violation

# Small enough for every limit below to leave a choice, and what vLLM's attention takes.
HEADS_OF_32: dict[str, dict[str, Any]] = {
    "head_dim": {"one_of": [32, 64, 80, 96, 128]},
    "window_size": {"min": 5},
}
steady = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.differing_executors],
)


def for_all(release: str, check: Callable[[Plamo3Spec], None], **kind: Any) -> None:
    limits = kind.pop("limits", {})
    steady(given(specs(release, limits, **kind))(check))()


@pytest.mark.parametrize("release", RELEASES)
def test_a_spec_is_of_the_release_that_was_asked_for(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.release == release

    for_all(release, check)


@pytest.mark.parametrize("release", RELEASES)
def test_repeat_and_tile_differ(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.num_key_value_heads >= 2
        assert spec.groups >= 2
        assert spec.groups != spec.num_key_value_heads

    for_all(release, check)


@pytest.mark.parametrize("release", RELEASES)
def test_no_matrix_can_be_transposed_and_no_width_taken_for_another(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        for name, shape in parameter_table(spec).items():
            assert len(shape) == 1 or shape[0] != shape[1], name
        hidden, inner, vocabulary = spec.hidden_size, spec.intermediate_size, spec.vocab_size
        heads = spec.num_attention_heads * spec.head_dim
        widths = [hidden, 2 * hidden, inner, 2 * inner, heads, vocabulary, spec.head_dim]
        assert len(set(widths)) == len(widths)
        assert math.isqrt(hidden) ** 2 != hidden

    for_all(release, check)


@pytest.mark.parametrize("release", RELEASES)
def test_an_untied_head_needs_no_padding_which_an_engine_may_refuse(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.tie_word_embeddings == (spec.vocab_size % 16 != 0)

    for_all(release, check)


@pytest.mark.parametrize("release", RELEASES)
def test_both_kinds_of_layers_occur_and_their_thetas_are_100_times_apart(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert set(spec.layer_kinds) == {LOCAL, GLOBAL}
        assert spec.rope_theta == 100 * spec.rope_local_theta
        assert 3 <= spec.window_size <= 7

    for_all(release, check)


def test_the_ramp_of_yarn_begins_and_ends_inside_the_head() -> None:
    def check(spec: Plamo3Spec) -> None:
        pairs = spec.head_dim // 2
        low, high = (
            pairs * math.log(spec.initial_context_length / (beta * 2 * math.pi)) / math.log(spec.rope_theta)
            for beta in (32, 1)
        )
        assert 0 < low < high < pairs - 1
        assert any(low < j < high for j in range(pairs))
        assert not low.is_integer()
        assert not high.is_integer()

    for_all("2604", check)


def test_the_factor_of_yarn_is_not_the_ratio_of_lengths() -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.max_position_embeddings / spec.initial_context_length != spec.rope_scaling_factor

    for_all("2604", check)


@pytest.mark.parametrize("release", RELEASES)
def test_tests_can_feed_more_than_they_need(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.max_position_embeddings >= 1024

    for_all(release, check)


@pytest.mark.parametrize(("layers", "kind"), [("local", LOCAL), ("global", GLOBAL)])
@pytest.mark.parametrize("release", RELEASES)
def test_models_of_one_layer_can_be_asked_for(release: str, layers: str, kind: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.layer_kinds == (kind,)

    for_all(release, check, layers=layers)


@pytest.mark.parametrize("release", RELEASES)
def test_limits_are_kept(release: str) -> None:
    def check(spec: Plamo3Spec) -> None:
        assert violation(spec.to_dict(), HEADS_OF_32) is None
        assert spec.head_dim == 32
        assert spec.window_size >= 5

    for_all(release, check, limits=HEADS_OF_32)


def test_a_limit_beyond_our_sizes_is_met_by_its_own_values() -> None:
    def check(spec: Plamo3Spec) -> None:
        assert spec.head_dim in (64, 128)

    for_all("2604", check, limits={"head_dim": {"one_of": [64, 128]}})


def test_a_limit_that_no_tiny_model_meets_is_named() -> None:
    with pytest.raises(BadInput) as caught:
        find(specs("4k", {"hidden_size": {"min": 4096}}), lambda spec: True)
    assert str(caught.value) == (
        "limits.hidden_size = {'min': 4096}, but should be met by at least one tiny model"
    )


def test_every_choice_is_drawn() -> None:
    for wanted in (
        {"tie_word_embeddings": False},
        {"rms_norm_eps": 1e-5},
        {"num_key_value_heads": 3},
        {"head_dim": 32},
        {"rope_scaling_factor": 256.0},
        {"initial_context_length": 1024},
        {"sliding_window_pattern": 4},
    ):
        find(specs("2604", {}), lambda spec, wanted=wanted: wanted.items() <= spec.to_dict().items())  # type: ignore[misc]


def test_a_spec_shrinks_to_the_smallest() -> None:
    smallest = find(specs("2604", {}), lambda spec: True)
    assert smallest == Plamo3Spec(
        vocab_size=120,
        hidden_size=80,
        num_hidden_layers=2,
        intermediate_size=56,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        window_size=3,
        sliding_window_pattern=2,
        max_position_embeddings=16_384,
        initial_context_length=256,
        rope_scaling_factor=4.0,
    )
