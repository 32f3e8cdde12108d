"""GGUF of PLaMo 3: every parameter once, gains with their offsets, one window key for both releases."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.families.plamo3 import gguf
from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.weights import tiny_weights
from tests.families.plamo3.sizes import SPEC_31B, tiny, tiny_2604

YARN = {
    "plamo3.rope.scaling.type": "yarn",
    "plamo3.rope.scaling.factor": 256.0,
    "plamo3.rope.scaling.original_context_length": 4096,
    "plamo3.rope.scaling.yarn_beta_fast": 32.0,
    "plamo3.rope.scaling.yarn_beta_slow": 1.0,
}
# Gain of a norm whose stored weight is 0 (docs/plamo3.md §4).
GAINS = {
    "attn_norm.weight": 1.0,
    "attn_q_norm.weight": 1.0,
    "attn_k_norm.weight": 1.0,
    "post_attention_norm": 0.2,
    "ffn_norm.weight": 1.0,
    "post_ffw_norm": 5**-1.5,
}


def test_the_configuration_of_31b() -> None:
    keys = gguf.metadata(SPEC_31B)
    assert keys == {
        "plamo3.vocab_size": 107520,
        "plamo3.context_length": 262144,
        "plamo3.embedding_length": 5120,
        "plamo3.block_count": 64,
        "plamo3.feed_forward_length": 25600,
        "plamo3.attention.head_count": 64,
        "plamo3.attention.head_count_kv": 8,
        "plamo3.attention.key_length": 128,
        "plamo3.attention.value_length": 128,
        "plamo3.attention.layer_norm_rms_epsilon": 1e-6,
        "plamo3.attention.sliding_window": 2048,
        "plamo3.attention.sliding_window_pattern": 8,
        "plamo3.rope.dimension_count": 128,
        "plamo3.rope.freq_base": 1e6,
        "plamo3.rope.freq_base_swa": 1e4,
        **YARN,
    }
    assert all(type(value) in (int, float, str) for value in keys.values())


def test_4k_has_the_same_window_and_no_scaling() -> None:
    keys = gguf.metadata(tiny())
    assert tiny().release == "4k"
    assert keys["plamo3.attention.sliding_window"] == tiny().window_size
    assert set(gguf.metadata(tiny_2604())) - set(keys) == set(YARN)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_written_once_and_keeps_its_shape(tied: bool) -> None:
    spec = tiny(tie_word_embeddings=tied)
    stored = tiny_weights(spec, 0)
    written = gguf.tensors(spec, stored)
    assert len(written) == len(parameter_table(spec))
    assert sorted(w.shape for w in written.values()) == sorted(parameter_table(spec).values())
    assert all(w.dtype == np.float32 for w in written.values())
    assert ("output.weight" in written) is not tied
    if not tied:
        assert written["output.weight"].shape[0] == spec.padded_vocab_size


def test_matrices_are_as_stored() -> None:
    spec = tiny()
    stored = tiny_weights(spec, 0)
    written = gguf.tensors(spec, stored)
    for layer in range(spec.num_hidden_layers):
        for short, name in (
            ("attn_qkv", "mixer.qkv_proj"),
            ("attn_output", "mixer.o_proj"),
            ("ffn_up", "mlp.gate_up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ):
            own = stored[f"model.layers.layers.{layer}.{name}.weight"]
            assert np.array_equal(written[f"blk.{layer}.{short}.weight"], own)
    assert np.array_equal(written["token_embd.weight"], stored["model.embed_tokens.weight"])


def test_gains_include_their_offsets() -> None:
    spec = tiny()
    bare = {name: np.zeros_like(w) for name, w in tiny_weights(spec, 0).items()}
    written = gguf.tensors(spec, bare)
    for short, gain in GAINS.items():
        assert np.array_equal(written[f"blk.1.{short}"], np.full_like(written[f"blk.1.{short}"], gain)), short
    assert np.all(written["output_norm.weight"] == 1)
