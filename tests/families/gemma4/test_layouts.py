from __future__ import annotations

import json

import pytest

from conformance.families.gemma4.layouts import layouts
from conformance.families.gemma4.spec import Gemma4Spec
from tests.families.gemma4.sizes import tiny, tiny_sharing


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_variants_have_names_of_their_own_and_mix_tokens_in_several_layers(spec: Gemma4Spec) -> None:
    names = [variant.name for variant in layouts(spec)]
    assert len(set(names)) == len(names) == 9
    assert all(variant.spec.probes is None for variant in layouts(spec))


def test_sharing_is_tried_both_ways_whatever_was_drawn() -> None:
    for spec in (tiny(), tiny_sharing()):
        own, shared, *_ = (variant.spec.to_dict()["num_kv_shared_layers"] for variant in layouts(spec))
        assert (own, shared) == (0, 2)


def test_left_out_keys_are_those_that_mean_the_same_when_missing() -> None:
    *_, present, left_out = layouts(tiny())
    assert present.spec == left_out.spec
    config = left_out.spec.to_config(omit_defaults=left_out.layout.omit_defaults)
    assert not {"layer_types", "rope_parameters", "rms_norm_eps", "num_kv_shared_layers"} & set(config)
    assert Gemma4Spec.from_config(json.loads(json.dumps(config))) == present.spec
