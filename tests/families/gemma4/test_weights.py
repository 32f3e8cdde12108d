from __future__ import annotations

import hashlib
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4 import reference
from conformance.families.gemma4.parameters import parameter_table
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.gemma4.weights import RECIPES, tiny_weights
from tests.families.gemma4.sizes import GLOBAL_TYPE, LOCAL_TYPE, tiny, tiny_sharing

SITES = ("input", "post_attention", "pre_feedforward", "post_feedforward")


def sha256(spec: Gemma4Spec, seed: int, recipe: str = "telling") -> str:
    digest = hashlib.sha256()
    for name, values in tiny_weights(spec, seed, recipe).items():
        digest.update(name.encode() + values.astype("<f4").tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("spec", "seed", "recipe", "expected"),
    [
        (tiny(), 1, "telling", "dffdf4fa3dba9ea0950bfea64dd95ac355740706535e54674a1c5fbe5840a16f"),
        (
            tiny_sharing(),
            65535,
            "telling",
            "f8f2d3ef31a03f799c3af1df40fa4099dae570465dad8bcd4d0114b6e6dcb17f",
        ),
        (tiny(), 1, "fresh", "35d808f21b89958ad94c2ae9ee9b8303d6b002e6edebe1f589ce551b2276f0dd"),
    ],
)
def test_weights_are_these_bits_on_every_machine_and_library_version(
    spec: Gemma4Spec, seed: int, recipe: str, expected: str
) -> None:
    assert sha256(spec, seed, recipe) == expected


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_weights_are_the_float32_tensors_of_the_parameter_table(spec: Gemma4Spec, recipe: str) -> None:
    weights = tiny_weights(spec, 1, recipe)
    assert list({name: w.shape for name, w in weights.items()}.items()) == list(parameter_table(spec).items())
    assert {w.dtype for w in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_value_is_finite_and_held_exactly_by_bf16(recipe: str) -> None:
    for name, w in tiny_weights(tiny(), 1, recipe).items():
        assert np.isfinite(w).all(), name
        assert not (w.view(np.uint32) & 0xFFFF).any(), name


def test_no_two_tensors_and_no_two_seeds_share_a_stream() -> None:
    drawn = [w.flatten() for seed in (1, 2) for w in tiny_weights(tiny(), seed).values() if w.ndim == 2]
    ranks = [np.argsort(np.argsort(values[:768])) for values in drawn]
    correlations = np.corrcoef(ranks) - np.eye(len(ranks))
    assert np.abs(correlations).max() < 0.2


@pytest.mark.parametrize("change", [{"window_size": 5}, {"rms_norm_eps": 1e-5}, {"num_kv_shared_layers": 1}])
def test_every_field_of_the_spec_names_other_weights(change: dict[str, int]) -> None:
    before, after = tiny_weights(tiny(), 1), tiny_weights(tiny(**change), 1)
    assert not any(np.array_equal(before[name], w) for name, w in after.items() if w.size > 1)


def test_equal_specs_name_equal_weights() -> None:
    assert sha256(tiny(final_logit_softcapping=30), 1) == sha256(tiny(final_logit_softcapping=30.0), 1)


def test_another_recipe_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        tiny_weights(tiny(), 1, "trained")
    assert str(caught.value) == "recipe = 'trained', but should be telling or fresh"


def test_gains_differ_from_site_to_site_and_from_1() -> None:
    # Long vectors, so that means are those of the recipe.
    weights = tiny_weights(tiny(hidden_size=502, head_dim=500, global_head_dim=500), 1)
    gains = [weights[f"model.layers.0.{site}_layernorm.weight"] for site in SITES]
    gains += [weights[f"model.layers.0.self_attn.{site}_norm.weight"] for site in "qk"]
    gains.append(weights["model.norm.weight"])
    means = sorted(float(gain.mean()) for gain in gains)
    assert all(later / earlier > 1.2 for earlier, later in pairwise(means))
    assert min(abs(mean - 1) for mean in means) > 0.05
    for gain in gains:
        assert gain.std() > 0.1 * gain.mean()
        assert gain.min() > 0


def test_layer_scalars_lie_between_0_05_and_1_5_and_differ() -> None:
    spec = tiny(num_hidden_layers=7, layer_types=(LOCAL_TYPE, GLOBAL_TYPE, GLOBAL_TYPE) * 2 + (GLOBAL_TYPE,))
    weights = tiny_weights(spec, 1)
    scalars = [float(weights[f"model.layers.{layer}.layer_scalar"][0]) for layer in range(7)]
    assert min(scalars) > 0.045
    assert max(scalars) < 1.5
    assert len(set(scalars)) == 7
    # The final norm undoes the last one but for eps: it must be small to be seen.
    assert scalars[-1] < 0.06


def test_every_second_token_has_a_mean_square_near_eps() -> None:
    table = math.sqrt(48) * tiny_weights(tiny(), 1)["model.embed_tokens.weight"].astype(np.float64)
    mean_square = (table**2).mean(axis=1)
    loud = np.arange(5, len(table), 8)
    faint = np.setdiff1d(np.arange(1, len(table), 2), loud)
    assert (mean_square[::2] > 0.4).all()
    assert ((mean_square[faint] > 1e-6) & (mean_square[faint] < 1e-5)).all()


def test_some_tokens_have_one_channel_100_times_the_rest() -> None:
    table = np.abs(tiny_weights(tiny(), 1)["model.embed_tokens.weight"])[5::8]
    rest = np.delete(table, 48 // 3, axis=1)
    assert (table[:, 48 // 3] > 50 * np.sqrt((rest**2).mean(axis=1))).all()


@pytest.mark.parametrize(("layer", "site", "faint"), [(0, "k", 0), (0, "v", 2), (1, "k", 0)])
def test_one_head_of_keys_and_of_values_has_a_mean_square_near_eps(layer: int, site: str, faint: int) -> None:
    spec = tiny()
    _, d = spec.heads(spec.layer_kinds[layer])
    w = tiny_weights(spec, 1)[f"model.layers.{layer}.self_attn.{site}_proj.weight"].astype(np.float64)
    mean_square = 48 * (w.reshape(-1, d, 48) ** 2).mean(axis=(1, 2))  # of heads, for unit input
    assert 1e-6 < mean_square[faint] < 1e-5
    assert (np.delete(mean_square, faint) > 0.8).all()


def test_only_the_layer_behind_a_local_probe_is_silent() -> None:
    name = "model.layers.1.self_attn.o_proj.weight"
    probe = tiny(num_hidden_layers=2, layer_types=(LOCAL_TYPE, GLOBAL_TYPE))
    assert not tiny_weights(probe, 1)[name].any()
    for spec in (tiny(), probe, tiny(num_hidden_layers=1, layer_types=(GLOBAL_TYPE,))):
        for other, w in tiny_weights(spec, 1).items():
            assert w.any() or (spec == probe and other == name), other


@pytest.mark.parametrize(("layer", "kind"), [(0, LOCAL), (1, GLOBAL)])
def test_attention_scores_spread_over_several_units_and_leave_a_choice(layer: int, kind: str) -> None:
    spec = tiny()
    weights = {name: torch.from_numpy(w).double() for name, w in tiny_weights(spec, 1).items()}
    block = {k.removeprefix(f"model.layers.{layer}."): w for k, w in weights.items()}
    kv_heads, d = spec.heads(kind)
    x = weights["model.embed_tokens.weight"][torch.arange(0, 97, 7)] * math.sqrt(48)
    x = reference.rms_norm(x, block["input_layernorm.weight"], 1e-6)

    def heads(site: str) -> torch.Tensor:
        projected = (x @ block[f"self_attn.{site}_proj.weight"].T).view(len(x), -1, d)
        return reference.rms_norm(projected, block[f"self_attn.{site}_norm.weight"], 1e-6)

    query, key = heads("q"), heads("k").repeat_interleave(6 // kv_heads, dim=1)
    scores = torch.einsum("thd,shd->hts", query, key)
    assert float((scores.amax(-1) - scores.amin(-1)).median()) > 4  # over the keys of a query
    assert 0.2 < float(scores.softmax(-1).amax(-1).median()) < 0.95


def test_the_softcap_bends_logits_and_flattens_few() -> None:
    spec = tiny()
    weights = {name: torch.from_numpy(w).double() for name, w in tiny_weights(spec, 1).items()}
    tokens = torch.arange(0, 97, 7)[None]
    positions = torch.arange(tokens.shape[1])[None]
    logits = reference.forward(spec, weights, tokens, positions, torch.zeros_like(tokens))
    largest = logits[0, :, ::2].abs().amax(-1) / 30
    assert float(largest.median()) > 0.3
    assert float(largest.median()) < 0.8


def test_a_fresh_model_has_gains_and_scalars_of_1_and_matrices_of_standard_deviation_0_02() -> None:
    for name, w in tiny_weights(tiny(hidden_size=512), 1, "fresh").items():
        if w.ndim == 1:
            assert (w == 1).all(), name
        else:
            assert abs(float(w.std()) - 0.02) < 0.001, name
