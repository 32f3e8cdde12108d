from __future__ import annotations

from math import prod

import pytest

from conformance.families.plamo3.parameters import block_elements, count_elements, parameter_table
from conformance.families.plamo3.spec import Plamo3Spec
from tests.families.plamo3.sizes import SPEC_31B, tiny


def test_31b_has_642_tensors() -> None:
    assert len(parameter_table(SPEC_31B)) == 10 * 64 + 2 == 642


def test_31b_has_31757456384_elements() -> None:
    assert count_elements(SPEC_31B) == 31_757_456_384


def test_a_block_of_31b_is_the_sum_of_five_summands() -> None:
    shapes = parameter_table(SPEC_31B)
    prefix = "model.layers.layers.63."
    summands = {
        "mixer.qkv_proj.weight": 52_428_800,
        "mixer.o_proj.weight": 41_943_040,
        "mlp.gate_up_proj.weight": 262_144_000,
        "mlp.down_proj.weight": 131_072_000,
    }
    assert {name: prod(shapes[prefix + name]) for name in summands} == summands
    norms = sum(prod(shape) for name, shape in shapes.items() if name.startswith(prefix) and "norm" in name)
    assert norms == 4 * 5120 + 2 * 128
    assert block_elements(SPEC_31B) == sum(summands.values()) + norms == 487_608_576


def test_a_tied_checkpoint_lists_every_tensor_with_its_shape() -> None:
    block: dict[str, tuple[int, ...]] = {
        "mixer.qkv_proj.weight": (160, 48),
        "mixer.o_proj.weight": (48, 96),
        "mixer.q_norm.weight": (16,),
        "mixer.k_norm.weight": (16,),
        "mlp.gate_up_proj.weight": (112, 48),
        "mlp.down_proj.weight": (48, 56),
        "pre_mixer_norm.weight": (48,),
        "post_mixer_norm.weight": (48,),
        "pre_mlp_norm.weight": (48,),
        "post_mlp_norm.weight": (48,),
    }
    expected: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (97, 48)}
    for layer in range(3):
        expected |= {f"model.layers.layers.{layer}.{name}": shape for name, shape in block.items()}
    expected["model.norm.weight"] = (48,)
    assert list(parameter_table(tiny()).items()) == list(expected.items())


@pytest.mark.parametrize(("vocabulary", "rows"), [(97, 112), (112, 112)])
def test_an_untied_checkpoint_has_a_padded_head_at_the_end(vocabulary: int, rows: int) -> None:
    tied = tiny(vocab_size=vocabulary)
    untied = tiny(vocab_size=vocabulary, tie_word_embeddings=False)
    extra = list(parameter_table(untied).items())[len(parameter_table(tied)) :]
    assert extra == [("lm_head.weight", (rows, 48))]
    assert count_elements(untied) - count_elements(tied) == rows * 48


def test_head_dim_and_not_the_hidden_size_decides_the_projections() -> None:
    spec: Plamo3Spec = tiny(head_dim=24)
    shapes = parameter_table(spec)
    assert shapes["model.layers.layers.0.mixer.qkv_proj.weight"] == (10 * 24, 48)
    assert shapes["model.layers.layers.0.mixer.o_proj.weight"] == (48, 6 * 24)
