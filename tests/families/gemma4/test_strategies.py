from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4.parameters import parameter_table
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.gemma4.strategies import specs
from conformance.limits import violation
from conformance.trials import models

# Small enough for every limit below to leave a choice, and what vLLM's attention takes.
HEADS_OF_32: dict[str, dict[str, Any]] = {
    "head_dim": {"one_of": [32, 64, 80, 96, 128]},
    "global_head_dim": {"one_of": [32, 48, 64, 80, 96, 128]},
    "window_size": {"min": 5},
}
steady = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.differing_executors],
)


def for_all(check: Callable[[Gemma4Spec], None], **kind: Any) -> None:
    limits = kind.pop("limits", {})
    steady(given(specs("gemma-4", limits, **kind))(check))()


def test_repeat_and_tile_differ_in_both_kinds_of_layers() -> None:
    def check(spec: Gemma4Spec) -> None:
        assert spec.num_key_value_heads != spec.num_global_key_value_heads
        for kind in (LOCAL, GLOBAL):
            kv_heads, _ = spec.heads(kind)
            groups = spec.num_attention_heads // kv_heads
            assert kv_heads >= 2
            assert groups >= 2
            assert groups != kv_heads

    for_all(check)


def test_no_matrix_can_be_transposed_and_no_width_taken_for_another() -> None:
    def check(spec: Gemma4Spec) -> None:
        for name, shape in parameter_table(spec).items():
            assert len(shape) == 1 or shape[0] != shape[1], name
        widths = {spec.num_attention_heads * spec.heads(kind)[1] for kind in (LOCAL, GLOBAL)}
        widths |= {heads * d for heads, d in map(spec.heads, (LOCAL, GLOBAL))}
        hidden, inner, vocabulary = spec.hidden_size, spec.intermediate_size, spec.vocab_size
        assert spec.head_dim != spec.global_head_dim
        assert not {hidden, 2 * hidden, inner, 2 * inner, vocabulary} & widths
        for one, other in itertools.permutations((hidden, inner, vocabulary), 2):
            assert one not in (other, 2 * other)
        assert round(hidden**0.5) ** 2 != hidden

    for_all(check)


def test_both_kinds_of_layers_occur_and_their_thetas_are_100_times_apart() -> None:
    def check(spec: Gemma4Spec) -> None:
        assert set(spec.layer_kinds) == {LOCAL, GLOBAL}
        assert spec.probes is None
        assert spec.rope_theta == 100 * spec.rope_local_theta
        assert 3 <= spec.window_size <= 7
        assert spec.max_position_embeddings >= 1024
        # At least two pairs turn and at least one passes.
        assert 2 < spec.rotated_pairs < spec.global_head_dim // 2

    for_all(check)


@pytest.mark.parametrize(("layers", "kind"), [("local", LOCAL), ("global", GLOBAL)])
def test_models_in_which_one_layer_mixes_can_be_asked_for(layers: str, kind: str) -> None:
    def check(spec: Gemma4Spec) -> None:
        assert spec.probes == kind
        assert spec.num_kv_shared_layers == 0

    for_all(check, layers=layers)


def test_limits_are_kept() -> None:
    def check(spec: Gemma4Spec) -> None:
        assert violation(spec.to_dict(), HEADS_OF_32) is None
        assert spec.head_dim == 32
        assert spec.global_head_dim in (48, 64)
        assert spec.window_size >= 5

    for_all(check, limits=HEADS_OF_32)


def test_a_backend_may_take_no_sharing_and_few_heads() -> None:
    def check(spec: Gemma4Spec) -> None:
        assert spec.num_kv_shared_layers == 0
        assert spec.num_attention_heads == 8

    for_all(check, limits={"num_kv_shared_layers": {"max": 0}, "num_attention_heads": {"one_of": [8]}})


def test_limits_that_no_tiny_model_meets_are_named() -> None:
    with pytest.raises(BadInput) as caught:
        find(specs("gemma-4", {"hidden_size": {"min": 4096}}), lambda spec: True)
    assert str(caught.value) == (
        "limits.hidden_size = {'min': 4096}, but should be met by at least one tiny model"
    )
    with pytest.raises(BadInput) as caught:
        find(specs("gemma-4", {"num_key_value_heads": {"max": 1}}), lambda spec: True)
    assert str(caught.value) == (
        "limits = {'num_key_value_heads': {'max': 1}}, but should be met by at least one tiny model"
    )


@pytest.mark.parametrize("limits", [{}, HEADS_OF_32])
def test_some_of_the_first_models_share_and_some_do_not(limits: dict[str, Any]) -> None:
    drawn = [spec.to_dict()["num_kv_shared_layers"] for spec, _ in models("gemma4", "gemma-4", limits, 2)]
    assert min(drawn) == 0 < max(drawn)


def test_every_choice_is_drawn() -> None:
    for wanted in (
        {"num_kv_shared_layers": 2},
        {"rms_norm_eps": 1e-5},
        {"num_key_value_heads": 2},
        {"head_dim": 32},
        {"global_head_dim": 64},
        {"final_logit_softcapping": 25.0},
    ):
        find(specs("gemma-4", {}), lambda spec, wanted=wanted: wanted.items() <= spec.to_dict().items())  # type: ignore[misc]


def test_a_spec_shrinks_to_the_smallest() -> None:
    smallest = find(specs("gemma-4", {}), lambda spec: True)
    assert smallest == Gemma4Spec(
        vocab_size=121,
        hidden_size=80,
        num_hidden_layers=3,
        intermediate_size=56,
        num_attention_heads=6,
        num_key_value_heads=3,
        num_global_key_value_heads=2,
        head_dim=16,
        global_head_dim=24,
        window_size=3,
        max_position_embeddings=4096,
        layer_types=("sliding_attention", "full_attention", "full_attention"),
        final_logit_softcapping=30.0,
    )
