from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conformance.families.gemma4.reference import forward
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.gemma4.symmetries import relabel
from conformance.families.gemma4.weights import tiny_weights
from tests.families.gemma4.sizes import tiny, tiny_sharing

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38]])
SPECS = {"own": tiny(), "sharing": tiny_sharing(), "every pair turns": tiny(partial_rotary_factor=1.0)}


def weights_of(spec: Gemma4Spec, dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: torch.from_numpy(w).to(dtype) for name, w in tiny_weights(spec, 1).items()}


def logits(spec: Gemma4Spec, weights: dict[str, Tensor]) -> Tensor:
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


def test_relabelling_permutes_every_tensor_but_scalars_and_the_gains_of_heads() -> None:
    spec = tiny()
    weights = weights_of(spec, torch.float32)
    relabelled = relabel(spec, weights, 1)
    assert list(relabelled) == list(weights)
    same = {key for key, w in weights.items() if torch.equal(relabelled[key], w)}
    gains = {f"model.layers.{i}.self_attn.{site}_norm.weight" for i in range(4) for site in "qk"}
    assert same == gains | {f"model.layers.{i}.layer_scalar" for i in range(4)}
    for key, w in weights.items():
        assert torch.equal(relabelled[key].flatten().sort().values, w.flatten().sort().values), key


def test_components_of_heads_keep_their_places() -> None:
    spec = tiny_sharing()
    marked = {name: torch.zeros_like(w) for name, w in weights_of(spec, torch.float32).items()}
    for name, w in marked.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            w[7] = 1
        if name.endswith("o_proj.weight"):
            w[:, 7] = 1
    relabelled = relabel(spec, marked, 1)
    assert all(torch.equal(relabelled[name], w) for name, w in marked.items())


def test_a_residual_channel_has_one_label_in_all_layers_and_an_inner_channel_one_in_each() -> None:
    spec = tiny()
    marked = {name: torch.zeros_like(w) for name, w in weights_of(spec, torch.float32).items()}
    for name, w in marked.items():
        if name.endswith(("post_feedforward_layernorm.weight", "model.norm.weight")):
            w[7] = 1
        if name.endswith("down_proj.weight"):
            w[:, 5] = 1
    relabelled = relabel(spec, marked, 1)
    residual = {
        int(w.argmax())
        for name, w in relabelled.items()
        if name.endswith(("post_feedforward_layernorm.weight", "model.norm.weight"))
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
