from __future__ import annotations

import numpy as np
import pytest

from conformance.families.gemma4.gguf import metadata, tensors
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.gemma4.weights import tiny_weights
from tests.families.gemma4.sizes import tiny, tiny_sharing


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_every_stored_tensor_is_written_once_and_unchanged(spec: Gemma4Spec) -> None:
    stored = tiny_weights(spec, 1)
    written = tensors(spec, stored)
    divisors = written.pop("rope_freqs.weight")
    assert divisors.shape == (12,)
    assert len(written) == len(stored)
    assert {id(w) for w in written.values()} == {id(w) for w in stored.values()}
    assert written["blk.1.layer_output_scale.weight"] is stored["model.layers.1.layer_scalar"]
    assert ("blk.2.attn_v.weight" in written) == (spec.num_kv_shared_layers == 0)
    assert "blk.1.attn_v.weight" not in written


def test_divisors_leave_the_pairs_that_turn_and_stop_the_others() -> None:
    spec = tiny(global_head_dim=32)
    divisors = tensors(spec, tiny_weights(spec, 1))["rope_freqs.weight"]
    assert divisors.dtype == np.float32
    assert (divisors[: spec.rotated_pairs] == 1).all()
    assert (4096 / divisors[spec.rotated_pairs :] < 1e-20).all()


def test_layers_have_their_kinds_and_heads() -> None:
    said = metadata(tiny_sharing())
    assert said["gemma4.attention.sliding_window_pattern"] == [True, False, True, False]
    assert said["gemma4.attention.head_count_kv"] == [3, 2, 3, 2]
    assert said["gemma4.attention.shared_kv_layers"] == 2
    assert (said["gemma4.attention.key_length"], said["gemma4.attention.key_length_swa"]) == (24, 16)
    assert (said["gemma4.rope.freq_base"], said["gemma4.rope.freq_base_swa"]) == (1e6, 1e4)
