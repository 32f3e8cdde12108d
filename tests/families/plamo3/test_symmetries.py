from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.reference import forward
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.plamo3.symmetries import relabel
from conformance.families.plamo3.weights import tiny_weights
from tests.families.plamo3.sizes import tiny, tiny_2604

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38]])
SPECS = {"tied": tiny_2604(), "untied": tiny(tie_word_embeddings=False)}


def weights_of(spec: Plamo3Spec, dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: torch.from_numpy(w).to(dtype) for name, w in tiny_weights(spec, 1).items()}


def logits(spec: Plamo3Spec, weights: dict[str, Tensor]) -> Tensor:
    positions = torch.arange(TOKENS.shape[1])[None]
    return forward(spec, weights, TOKENS, positions, torch.zeros_like(TOKENS))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_relabelled_model_has_the_same_logits(name: str, seed: int) -> None:
    spec = SPECS[name]
    weights = weights_of(spec, torch.float64)
    assert (logits(spec, relabel(spec, weights, seed)) - logits(spec, weights)).abs().max() < 1e-9


@pytest.mark.parametrize("name", SPECS)
def test_relabelling_reorders_the_sums_of_fp32(name: str) -> None:
    spec = SPECS[name]
    weights = weights_of(spec, torch.float32)
    runs = [logits(spec, weights), *(logits(spec, relabel(spec, weights, seed)) for seed in (1, 2))]
    assert not torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[1], runs[2])


@pytest.mark.parametrize("name", SPECS)
def test_relabelling_permutes_every_tensor_but_the_gains_of_q_and_k(name: str) -> None:
    spec = SPECS[name]
    weights = weights_of(spec, torch.float32)
    relabelled = relabel(spec, weights, 1)
    assert list(relabelled) == list(weights)
    same = [key for key, w in weights.items() if torch.equal(relabelled[key], w)]
    assert same == [key for key in parameter_table(spec) if "q_norm" in key or "k_norm" in key]
    for key, w in weights.items():
        assert torch.equal(relabelled[key].flatten().sort().values, w.flatten().sort().values), key


def test_q_and_k_rows_keep_their_order_because_rope_pairs_them() -> None:
    spec = tiny_2604()
    weights = weights_of(spec, torch.float32)
    name = "model.layers.layers.0.mixer.qkv_proj.weight"
    rotated = (spec.num_attention_heads + spec.num_key_value_heads) * spec.head_dim
    before, after = weights[name], relabel(spec, weights, 1)[name]
    assert torch.equal(after[:rotated].sort(-1).values, before[:rotated].sort(-1).values)
    assert not torch.equal(after[rotated:].sort(-1).values, before[rotated:].sort(-1).values)


def test_a_residual_channel_has_one_label_in_all_layers_and_a_value_channel_one_in_each() -> None:
    spec = tiny()
    marked = {name: torch.zeros_like(w) for name, w in weights_of(spec, torch.float32).items()}
    for name, w in marked.items():
        if name.endswith(("post_mlp_norm.weight", "model.norm.weight")):
            w[7] = 1
        if name.endswith("down_proj.weight"):
            w[:, 5] = 1
    relabelled = relabel(spec, marked, 1)
    residual = {
        int(w.argmax())
        for name, w in relabelled.items()
        if name.endswith(("post_mlp_norm.weight", "model.norm.weight"))
    }
    inner = [int(w[0].argmax()) for name, w in relabelled.items() if name.endswith("down_proj.weight")]
    assert len(residual) == 1
    assert len(set(inner)) == spec.num_hidden_layers


def test_equal_seeds_relabel_equally() -> None:
    spec = tiny()
    weights = weights_of(spec, torch.float32)
    first, again, other = (relabel(spec, weights, seed) for seed in (1, 1, 2))
    name = "model.embed_tokens.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])
