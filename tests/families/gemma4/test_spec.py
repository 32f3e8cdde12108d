from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4.spec import Gemma4Spec, default_layer_types
from tests.families.gemma4.sizes import (
    CONFIG_31B,
    GLOBAL_TYPE,
    LOCAL_TYPE,
    SPEC_31B,
    TINY,
    tiny,
    tiny_sharing,
)

SIZE_KEYS = {
    **{name: name for name, value in TINY.items() if isinstance(value, int)},
    "window_size": "sliding_window",
}


def message_of(field: str, value: Any) -> str:
    with pytest.raises(BadInput) as caught:
        tiny(**{field: value})
    return str(caught.value)


def refusal_of(config: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        Gemma4Spec.from_config(config, "model/config.json")
    return str(caught.value)


@pytest.mark.parametrize("field", SIZE_KEYS)
@pytest.mark.parametrize("value", [0, -1, 1.5, 4.0, "4", None, True])
def test_a_size_must_be_a_whole_number(field: str, value: Any) -> None:
    want = f"{SIZE_KEYS[field]} = {value!r}, but should be a whole number, 1 or larger"
    assert message_of(field, value) == want


@pytest.mark.parametrize(
    "field", ["rms_norm_eps", "rope_local_theta", "rope_theta", "final_logit_softcapping"]
)
@pytest.mark.parametrize("value", [0, -1e-6, "1e-6", None, True, float("nan"), float("inf")])
def test_eps_thetas_and_softcap_must_be_positive(field: str, value: Any) -> None:
    assert message_of(field, value) == f"{field} = {value!r}, but should be a positive number"


@pytest.mark.parametrize("value", [0, -0.25, 1.5, "0.25", True, float("nan")])
def test_a_share_of_the_pairs_turns(value: Any) -> None:
    assert message_of("partial_rotary_factor", value) == (
        f"partial_rotary_factor = {value!r}, but should be above 0, at most 1"
    )


@pytest.mark.parametrize("name", ["num_key_value_heads", "num_global_key_value_heads"])
def test_query_heads_must_divide_among_the_key_value_heads_of_both_kinds(name: str) -> None:
    assert message_of(name, 4) == f"num_attention_heads = 6, but should be a multiple of {name} (4)"


@pytest.mark.parametrize("name", ["head_dim", "global_head_dim"])
def test_a_head_must_have_pairs_to_rotate(name: str) -> None:
    assert message_of(name, 15) == f"{name} = 15, but should be even: RoPE rotates pairs (j, j + {name}/2)"


@pytest.mark.parametrize("value", [None, "full_attention", (GLOBAL_TYPE,)])
def test_every_layer_needs_a_type(value: Any) -> None:
    want = f"layer_types = {value!r}, but should be a list of num_hidden_layers (4) names"
    assert message_of("layer_types", value) == want


@pytest.mark.parametrize("name", ["chunked_attention", None, [], {}])
def test_a_layer_is_local_or_global(name: Any) -> None:
    assert message_of("layer_types", (LOCAL_TYPE, name, LOCAL_TYPE, GLOBAL_TYPE)) == (
        f"layer_types[1] = {name!r}, but should be sliding_attention or full_attention"
    )


def test_the_last_layer_is_global() -> None:
    assert message_of("layer_types", (GLOBAL_TYPE,) * 3 + (LOCAL_TYPE,)) == (
        "layer_types[3] = 'sliding_attention', but should be full_attention, as the last layer is"
    )


@pytest.mark.parametrize("value", [-1, 4, 1.0, None, True])
def test_the_first_layer_shares_nothing(value: Any) -> None:
    assert message_of("num_kv_shared_layers", value) == (
        f"num_kv_shared_layers = {value!r}, but should be a whole number from 0 to 3"
    )


def test_layers_that_share_need_a_layer_of_their_kind_before_them() -> None:
    assert message_of("num_kv_shared_layers", 3) == (
        "num_kv_shared_layers = 3, but should be fewer: no full_attention layer is left to share the K/V of"
    )


def test_layers_share_with_the_last_of_their_kind_that_has_its_own() -> None:
    types = (
        LOCAL_TYPE,
        GLOBAL_TYPE,
        LOCAL_TYPE,
        LOCAL_TYPE,
        GLOBAL_TYPE,
        LOCAL_TYPE,
        LOCAL_TYPE,
        GLOBAL_TYPE,
    )
    spec = tiny(num_hidden_layers=8, layer_types=types, num_kv_shared_layers=4)
    assert spec.kv_layers == (0, 1, 2, 3, 1, 3, 3, 1)
    assert tiny_sharing().kv_layers == (0, 1, 0, 1)
    assert tiny().kv_layers == (0, 1, 2, 3)


def test_31b_has_10_global_layers_and_the_last_is_one() -> None:
    places = [i for i, kind in enumerate(SPEC_31B.layer_kinds) if kind == GLOBAL]
    assert places == list(range(5, 60, 6))
    assert default_layer_types(60) == SPEC_31B.layer_types
    assert default_layer_types(4) == (LOCAL_TYPE,) * 3 + (GLOBAL_TYPE,)


def test_layers_of_both_kinds_have_their_own_heads() -> None:
    assert SPEC_31B.heads(LOCAL) == (16, 256)
    assert SPEC_31B.heads(GLOBAL) == (4, 512)


def test_a_quarter_of_the_pairs_turns() -> None:
    assert SPEC_31B.rotated_pairs == 64
    assert [tiny(global_head_dim=d).rotated_pairs for d in (16, 24, 32, 48, 64)] == [2, 3, 4, 6, 8]
    assert tiny(partial_rotary_factor=1).rotated_pairs == 12


def test_the_window_spans_w_tokens() -> None:
    assert (SPEC_31B.window_size, SPEC_31B.window_span, tiny().window_span) == (1024, 1024, 4)


def test_a_probe_has_one_layer_that_mixes() -> None:
    assert tiny(num_hidden_layers=1, layer_types=(GLOBAL_TYPE,)).probes == GLOBAL
    assert tiny(num_hidden_layers=2, layer_types=(LOCAL_TYPE, GLOBAL_TYPE)).probes == LOCAL
    assert tiny(num_hidden_layers=2, layer_types=(GLOBAL_TYPE, GLOBAL_TYPE)).probes is None
    assert tiny().probes is None


def test_there_is_one_release() -> None:
    assert SPEC_31B.release == tiny().release == "gemma-4"


def test_the_text_part_of_a_whole_model_is_read() -> None:
    whole = {"model_type": "gemma4", "text_config": CONFIG_31B, "vision_config": {"hidden_size": 768}}
    assert Gemma4Spec.from_config(whole) == SPEC_31B


def test_a_whole_model_must_have_a_tied_head_and_a_text_part() -> None:
    assert refusal_of({"text_config": None}) == (
        "text_config = None, but should be an object [model/config.json]"
    )
    assert refusal_of({"text_config": CONFIG_31B, "tie_word_embeddings": False}) == (
        "tie_word_embeddings = False, but should be true [model/config.json]"
    )


@pytest.mark.parametrize(
    ("key", "value", "want"),
    [
        ("hidden_size_per_layer_input", 256, "0: per-layer embeddings are not covered"),
        ("enable_moe_block", True, "false: mixtures of experts are not covered"),
        ("use_double_wide_mlp", True, "false: double-wide MLPs are not covered"),
        (
            "use_bidirectional_attention",
            "all",
            "null or 'vision': attention in both directions is not covered",
        ),
        ("attention_k_eq_v", False, "true: V of global layers starts from k_proj"),
        ("attention_bias", True, "false: projections have no bias"),
        ("attention_dropout", 0.1, "0: dropout is not covered"),
        ("hidden_activation", "silu", "'gelu_pytorch_tanh'"),
        ("tie_word_embeddings", False, "true: the head is the embedding"),
        ("rope_parameters", [], "an object with an entry for each layer type"),
    ],
)
def test_what_is_not_covered_is_refused_with_its_key_and_file(key: str, value: Any, want: str) -> None:
    assert refusal_of({**CONFIG_31B, key: value}) == (
        f"{key} = {value!r}, but should be {want} [model/config.json]"
    )


@pytest.mark.parametrize(
    ("layer_type", "changed", "message"),
    [
        (LOCAL_TYPE, None, "rope_parameters.sliding_attention = None, but should be an object"),
        (
            LOCAL_TYPE,
            {"rope_type": "yarn"},
            "rope_parameters.sliding_attention.rope_type = 'yarn', but should be 'default'",
        ),
        (
            GLOBAL_TYPE,
            {"rope_type": "default"},
            "rope_parameters.full_attention.rope_type = 'default', but should be 'proportional'",
        ),
        (
            GLOBAL_TYPE,
            {"rope_type": "proportional", "factor": 8},
            "rope_parameters.full_attention.factor = 8, but should be 1: scaled RoPE is not covered",
        ),
        (
            GLOBAL_TYPE,
            {"rope_type": "proportional"},
            "rope_parameters.full_attention.rope_theta is missing, but gemma4 needs it",
        ),
    ],
)
def test_rope_of_another_kind_is_refused(layer_type: str, changed: Any, message: str) -> None:
    rope = {**CONFIG_31B["rope_parameters"], layer_type: changed}
    assert refusal_of({**CONFIG_31B, "rope_parameters": rope}) == f"{message} [model/config.json]"


@pytest.mark.parametrize(
    ("key", "meaning", "want"),
    [
        ("hidden_size_per_layer_input", "256", "0: per-layer embeddings are not covered"),
        ("attention_k_eq_v", "False", "true: V of global layers starts from k_proj"),
    ],
)
def test_a_missing_key_that_means_another_model_is_refused(key: str, meaning: str, want: str) -> None:
    config = {name: value for name, value in CONFIG_31B.items() if name != key}
    assert refusal_of(config) == (
        f"{key} is missing, which means {meaning}, but should be {want} [model/config.json]"
    )


@pytest.mark.parametrize("key", [*SIZE_KEYS.values(), "final_logit_softcapping"])
def test_a_missing_key_is_named_with_its_file(key: str) -> None:
    config = {name: value for name, value in CONFIG_31B.items() if name != key}
    assert refusal_of(config) == f"{key} is missing, but gemma4 needs it [model/config.json]"


def test_a_wrong_value_is_named_with_its_file() -> None:
    assert refusal_of({**CONFIG_31B, "sliding_window": "all"}) == (
        "sliding_window = 'all', but should be a whole number, 1 or larger [model/config.json]"
    )


def test_a_missing_share_of_the_pairs_means_all_of_them() -> None:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6},
    }
    assert Gemma4Spec.from_config({**CONFIG_31B, "rope_parameters": rope}).partial_rotary_factor == 1


@pytest.mark.parametrize(
    "key",
    [
        "layer_types",
        "rope_parameters",
        "rms_norm_eps",
        "num_kv_shared_layers",
        "hidden_activation",
        "use_bidirectional_attention",
    ],
)
def test_keys_that_may_be_left_out_mean_31b(key: str) -> None:
    assert Gemma4Spec.from_config({n: v for n, v in CONFIG_31B.items() if n != key}) == SPEC_31B
    assert Gemma4Spec.from_config({**CONFIG_31B, "layer_types": None, "rope_parameters": None}) == SPEC_31B


@pytest.mark.parametrize("spec", [SPEC_31B, tiny(), tiny_sharing(rope_theta=4e5, rms_norm_eps=1e-5)])
@pytest.mark.parametrize("omit_defaults", [False, True])
def test_a_config_reads_back_as_the_same_spec(spec: Gemma4Spec, omit_defaults: bool) -> None:
    config = json.loads(json.dumps(spec.to_config(omit_defaults=omit_defaults)))
    assert config["architectures"] == ["Gemma4ForCausalLM"]
    assert config["model_type"] == "gemma4_text"
    assert Gemma4Spec.from_config(config) == spec
    assert Gemma4Spec.from_config(json.loads(json.dumps(spec.to_dict()))) == spec


def test_omitted_defaults_leave_the_keys_that_mean_another_model_when_missing() -> None:
    kept = set(SPEC_31B.to_config(omit_defaults=True)) - {"architectures", "model_type"}
    assert kept == {
        *SIZE_KEYS.values(),
        "final_logit_softcapping",
        "attention_k_eq_v",
        "hidden_size_per_layer_input",
    }


def test_a_value_other_than_the_default_is_never_omitted() -> None:
    kept = tiny_sharing(rms_norm_eps=1e-5, partial_rotary_factor=0.5).to_config(omit_defaults=True)
    assert {"rms_norm_eps", "layer_types", "rope_parameters", "num_kv_shared_layers"} <= set(kept)


def test_limits_find_the_fields_that_they_go_by() -> None:
    given = tiny().to_dict()
    assert {name: given[name] for name in ("head_dim", "global_head_dim", "window_size")} == {
        "head_dim": 16,
        "global_head_dim": 24,
        "window_size": 4,
    }


def test_a_spec_says_what_it_is_in_a_few_words() -> None:
    assert tiny_sharing().describe() == (
        "gemma-4: 4 layers lglg, 2 sharing K/V, D 48, heads 6/3 of 16 and 6/2 of 24, F 56, W 4, V 97"
    )
    assert ", 2 sharing" not in tiny().describe()


def test_a_spec_is_frozen_and_hashable() -> None:
    spec = Gemma4Spec(**{**TINY, "layer_types": list(TINY["layer_types"])})
    assert hash(spec) == hash(tiny())
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.window_size = 5  # type: ignore[misc]
