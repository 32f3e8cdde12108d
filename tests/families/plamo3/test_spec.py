from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL
from conformance.families.plamo3.spec import RELEASES, Plamo3Spec
from conformance.families.plamo3.strategies import specs
from tests.families.plamo3.sizes import CONFIG_31B, SPEC_31B, TINY, tiny, tiny_2604

WHOLE = "a whole number, 1 or larger"
SIZE_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
    "sliding_window_pattern",
    "initial_context_length",
    "max_position_embeddings",
)
REQUIRED_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
    "max_position_embeddings",
)


def message_of(key: str, value: Any) -> str:
    with pytest.raises(BadInput) as caught:
        tiny(**{key: value})
    return str(caught.value)


@pytest.mark.parametrize("key", SIZE_KEYS)
@pytest.mark.parametrize("value", [0, -1, 1.5, 4.0, "4", None, True])
def test_a_size_must_be_a_whole_number(key: str, value: Any) -> None:
    assert message_of(key, value) == f"{key} = {value!r}, but should be a whole number, 1 or larger"


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_local_theta", "rope_theta"])
@pytest.mark.parametrize("value", [0, -1e-6, "1e-6", None, True, float("nan"), float("inf")])
def test_eps_and_thetas_must_be_positive(key: str, value: Any) -> None:
    assert message_of(key, value) == f"{key} = {value!r}, but should be a positive number"


@pytest.mark.parametrize("value", [0, 0.5, -256, "256", True, float("nan"), float("inf"), None])
def test_a_scaling_factor_cannot_be_below_1(value: Any) -> None:
    assert message_of("rope_scaling_factor", value) == (
        f"rope_scaling_factor = {value!r}, but should be a number, 1 or larger"
    )


@pytest.mark.parametrize("key", ["tie_word_embeddings", "scale_embedding"])
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_flags_must_be_true_or_false(key: str, value: Any) -> None:
    assert message_of(key, value) == f"{key} = {value!r}, but should be true or false"


def test_neither_release_scales_embeddings() -> None:
    assert message_of("scale_embedding", True) == (
        "scale_embedding = True, but should be false: neither release scales embeddings"
    )


def test_query_heads_must_divide_among_key_value_heads() -> None:
    assert message_of("num_attention_heads", 7) == (
        "num_attention_heads = 7, but should be a multiple of num_key_value_heads (2)"
    )


def test_a_head_must_have_pairs_to_rotate() -> None:
    assert message_of("head_dim", 15) == (
        "head_dim = 15, but should be even: RoPE rotates pairs (j, j + head_dim/2)"
    )


def test_head_dim_is_free_of_the_hidden_size() -> None:
    assert SPEC_31B.head_dim * SPEC_31B.num_attention_heads == 8192 > SPEC_31B.hidden_size


@pytest.mark.parametrize("key", REQUIRED_KEYS)
def test_a_missing_key_is_named_with_its_file(key: str) -> None:
    config = {name: value for name, value in TINY.items() if name != key}
    with pytest.raises(BadInput) as caught:
        Plamo3Spec.from_config(config, "model/config.json")
    assert str(caught.value) == f"{key} is missing, but plamo3 needs it [model/config.json]"
    with pytest.raises(BadInput) as caught:
        Plamo3Spec.from_config(config)
    assert str(caught.value) == f"{key} is missing, but plamo3 needs it"


def test_a_wrong_value_is_named_with_its_file() -> None:
    with pytest.raises(BadInput) as caught:
        Plamo3Spec.from_config({**TINY, "window_size": "all"}, "model/config.json")
    assert str(caught.value) == f"window_size = 'all', but should be {WHOLE} [model/config.json]"
    with pytest.raises(BadInput) as caught:
        Plamo3Spec.from_config({**TINY, "window_size": "all"})
    assert str(caught.value) == f"window_size = 'all', but should be {WHOLE}"


def test_keys_that_may_be_left_out_take_the_documented_defaults() -> None:
    required = {key: TINY[key] for key in REQUIRED_KEYS}
    spec = Plamo3Spec.from_config(required)
    assert {key: value for key, value in spec.to_dict().items() if key not in required} == {
        "rms_norm_eps": 1e-6,
        "sliding_window_pattern": 8,
        "rope_local_theta": 10_000.0,
        "rope_theta": 1_000_000.0,
        "initial_context_length": 4096,
        "rope_scaling_factor": 1.0,
        "tie_word_embeddings": True,
        "scale_embedding": False,
    }


def test_keys_that_the_model_does_not_read_are_ignored() -> None:
    noise = {"linear_type": "fp8", "rope_scaling": None, "architectures": ["X"], "model_type": "plamo3"}
    assert Plamo3Spec.from_config({**CONFIG_31B, **noise}) == SPEC_31B


def test_the_scaling_factor_tells_the_release() -> None:
    assert SPEC_31B.release == "2604"
    assert Plamo3Spec.from_config({**TINY, "rope_scaling_factor": 1.0001}).release == "2604"
    assert Plamo3Spec.from_config({**TINY, "rope_scaling_factor": 1}).release == "4k"
    assert Plamo3Spec.from_config({**TINY, "rope_scaling_factor": None}).release == "4k"
    assert Plamo3Spec.from_config(TINY).release == "4k"


def test_the_window_spans_w_tokens_in_2604_and_one_more_in_4k() -> None:
    assert (tiny_2604().window_size, tiny_2604().window_span) == (4, 4)
    assert (tiny().window_size, tiny().window_span) == (4, 5)


def test_every_patternth_layer_is_global_counting_from_0() -> None:
    assert tiny(num_hidden_layers=7, sliding_window_pattern=3).layer_kinds == (
        *(LOCAL, LOCAL, GLOBAL),
        *(LOCAL, LOCAL, GLOBAL),
        LOCAL,
    )
    assert tiny(sliding_window_pattern=1).layer_kinds == (GLOBAL, GLOBAL, GLOBAL)
    assert [i for i, kind in enumerate(SPEC_31B.layer_kinds) if kind == GLOBAL] == list(range(7, 64, 8))


def test_groups_are_query_heads_to_a_key_value_head() -> None:
    assert (tiny().groups, SPEC_31B.groups) == (3, 8)


def test_the_head_has_a_multiple_of_16_rows() -> None:
    assert [tiny(vocab_size=v).padded_vocab_size for v in (1, 16, 17, 97, 112)] == [16, 16, 32, 112, 112]
    assert SPEC_31B.padded_vocab_size == 107520


def test_a_2604_config_says_all_keys() -> None:
    config = SPEC_31B.to_config()
    assert config == {
        "architectures": ["Plamo3ForCausalLM"],
        "model_type": "plamo3",
        **{key: value for key, value in CONFIG_31B.items() if key != "linear_type"},
        "tie_word_embeddings": True,
    }


def test_a_4k_config_lacks_the_keys_that_would_tell_2604() -> None:
    config = tiny().to_config()
    assert "rope_scaling_factor" not in config
    assert "initial_context_length" not in config
    assert config["max_position_embeddings"] == 4096
    assert Plamo3Spec.from_config(config) == tiny()


def test_omitted_defaults_leave_the_required_keys() -> None:
    config = SPEC_31B.to_config(omit_defaults=True)
    named = {"architectures", "model_type"}
    assert set(config) - named == {*REQUIRED_KEYS, "rope_scaling_factor"}
    assert Plamo3Spec.from_config(config) == SPEC_31B


def test_a_value_other_than_the_default_is_never_omitted() -> None:
    spec = tiny_2604(rms_norm_eps=1e-5, tie_word_embeddings=False, rope_theta=5e5, rope_local_theta=2e4)
    kept = {"rms_norm_eps", "tie_word_embeddings", "rope_theta", "rope_local_theta", "initial_context_length"}
    assert kept <= set(spec.to_config(omit_defaults=True))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("omit_defaults", [False, True])
def test_config_json_round_trips(release: str, omit_defaults: bool) -> None:
    @settings(deadline=None, derandomize=True, database=None)
    @given(specs(release, {}))
    def round_trip(spec: Plamo3Spec) -> None:
        text = json.dumps(spec.to_config(omit_defaults=omit_defaults))
        again = Plamo3Spec.from_config(json.loads(text))
        assert again == spec
        assert again.release == release

    round_trip()


def test_fields_round_trip() -> None:
    for spec in (tiny(), tiny_2604(), SPEC_31B):
        assert Plamo3Spec(**json.loads(json.dumps(spec.to_dict()))) == spec


def test_whole_and_decimal_numbers_are_one_configuration() -> None:
    decimal = {"rope_scaling_factor": 256.0, "rope_theta": 1e6, "rope_local_theta": 1e4}
    whole, same = Plamo3Spec.from_config(CONFIG_31B), Plamo3Spec.from_config({**CONFIG_31B, **decimal})
    assert json.dumps(whole.to_dict()) == json.dumps(same.to_dict())


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SPEC_31B.window_size = 4096  # type: ignore[misc]


def test_a_spec_describes_itself() -> None:
    assert SPEC_31B.describe() == (
        "2604: 64 layers, D 5120, heads 64/8, d 128, F 25600, W 2048, V 107520, tied"
    )
    assert tiny(tie_word_embeddings=False).describe() == (
        "4k: 3 layers, D 48, heads 6/2, d 16, F 56, W 4, V 97, untied"
    )
