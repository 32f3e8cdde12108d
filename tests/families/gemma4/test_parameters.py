from __future__ import annotations

from conformance.families.gemma4.parameters import count_elements, parameter_table
from tests.families.gemma4.sizes import SPEC_31B, tiny, tiny_sharing


def test_31b_has_832_tensors_60_of_them_scalars() -> None:
    table = parameter_table(SPEC_31B)
    assert len(table) == 50 * 14 + 10 * 13 + 2 == 832
    assert sum(shape == (1,) for shape in table.values()) == 60


def test_31b_has_30697345340_elements() -> None:
    assert count_elements(SPEC_31B) == 30_697_345_340


def test_a_checkpoint_lists_every_tensor_with_its_shape() -> None:
    def block(head_dim: int, kv_heads: int, *, own_values: bool) -> dict[str, tuple[int, ...]]:
        values = {"self_attn.v_proj.weight": (kv_heads * head_dim, 48)} if own_values else {}
        return {
            "layer_scalar": (1,),
            "self_attn.q_proj.weight": (6 * head_dim, 48),
            "self_attn.q_norm.weight": (head_dim,),
            "self_attn.k_proj.weight": (kv_heads * head_dim, 48),
            "self_attn.k_norm.weight": (head_dim,),
            **values,
            "self_attn.o_proj.weight": (48, 6 * head_dim),
            "mlp.gate_proj.weight": (56, 48),
            "mlp.up_proj.weight": (56, 48),
            "mlp.down_proj.weight": (48, 56),
            "input_layernorm.weight": (48,),
            "post_attention_layernorm.weight": (48,),
            "pre_feedforward_layernorm.weight": (48,),
            "post_feedforward_layernorm.weight": (48,),
        }

    expected: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (97, 48)}
    for layer in range(4):
        own = block(24, 2, own_values=False) if layer % 2 else block(16, 3, own_values=True)
        expected |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    expected["model.norm.weight"] = (48,)
    assert list(parameter_table(tiny()).items()) == list(expected.items())


def test_layers_that_share_have_no_keys_and_values_of_their_own() -> None:
    missing = set(parameter_table(tiny())) - set(parameter_table(tiny_sharing()))
    assert missing == {
        "model.layers.2.self_attn.k_proj.weight",
        "model.layers.2.self_attn.k_norm.weight",
        "model.layers.2.self_attn.v_proj.weight",
        "model.layers.3.self_attn.k_proj.weight",
        "model.layers.3.self_attn.k_norm.weight",
    }
