from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from conformance.errors import BadInput
from conformance.families.plamo3 import reference
from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.plamo3.weights import RECIPES, tiny_weights
from tests.families.plamo3.sizes import tiny, tiny_2604

FIRST = "model.layers.layers.0."
OFFSETS = {
    "pre_mixer_norm": 1.0,
    "post_mixer_norm": 1 / 5,
    "pre_mlp_norm": 1.0,
    "post_mlp_norm": 5**-1.5,
    "mixer.q_norm": 1.0,
    "mixer.k_norm": 1.0,
}
UNTIED = tiny(tie_word_embeddings=False)


def sha256(spec: Plamo3Spec, seed: int, recipe: str = "telling") -> str:
    digest = hashlib.sha256()
    for name, values in tiny_weights(spec, seed, recipe).items():
        digest.update(name.encode() + values.astype("<f4").tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("spec", "seed", "recipe", "expected"),
    [
        (tiny(), 1, "telling", "be029db4d4742e2e206ad52332b778100ac81a67b26dfc3dceb62dded901143b"),
        (
            tiny_2604(tie_word_embeddings=False),
            65535,
            "telling",
            "f766764ade493818753a55ff285ada569bd50dc9b1be9ece084b16602fd519e1",
        ),
        (tiny_2604(), 1, "fresh", "7b102220968c2e8b23d9278ffb16e590e3269aa4a215779a54adedd43df03569"),
    ],
)
def test_weights_are_these_bits_on_every_machine_and_library_version(
    spec: Plamo3Spec, seed: int, recipe: str, expected: str
) -> None:
    assert sha256(spec, seed, recipe) == expected


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("spec", [tiny_2604(), UNTIED])
def test_weights_are_the_float32_tensors_of_the_parameter_table(spec: Plamo3Spec, recipe: str) -> None:
    weights = tiny_weights(spec, 1, recipe)
    assert {name: w.shape for name, w in weights.items()} == parameter_table(spec)
    assert list(weights) == list(parameter_table(spec))
    assert {w.dtype for w in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_value_is_finite_and_held_exactly_by_bf16(recipe: str) -> None:
    for name, w in tiny_weights(UNTIED, 1, recipe).items():
        assert np.isfinite(w).all(), name
        assert not (w.view(np.uint32) & 0xFFFF).any(), name


def test_no_two_tensors_and_no_two_seeds_share_a_stream() -> None:
    spec = tiny(num_hidden_layers=6)
    drawn = [w.flatten() for seed in (1, 2) for w in tiny_weights(spec, seed).values() if w.ndim == 2]
    ranks = [np.argsort(np.argsort(values[:768])) for values in drawn]
    correlations = np.corrcoef(ranks) - np.eye(len(ranks))
    assert np.abs(correlations).max() < 0.2


@pytest.mark.parametrize(
    "change",
    [{"window_size": 5}, {"rms_norm_eps": 1e-5}, {"rope_theta": 1e5}, {"max_position_embeddings": 8192}],
)
def test_every_key_of_the_spec_names_other_weights(change: dict[str, int]) -> None:
    before, after = tiny_weights(tiny(), 1), tiny_weights(tiny(**change), 1)
    for name, w in before.items():
        assert not np.array_equal(w, after[name]), name


def test_equal_specs_name_equal_weights() -> None:
    assert sha256(tiny_2604(rope_scaling_factor=16), 1) == sha256(tiny_2604(rope_scaling_factor=16.0), 1)


def test_another_recipe_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        tiny_weights(tiny(), 1, "trained")
    assert str(caught.value) == "recipe = 'trained', but should be telling or fresh"


def test_effective_gains_differ_from_site_to_site_and_from_1() -> None:
    # Long vectors, so that means are those of the recipe.
    sizes = {"vocab_size": 16, "num_hidden_layers": 1, "intermediate_size": 8, "num_attention_heads": 2}
    weights = tiny_weights(tiny(**sizes, hidden_size=500, head_dim=500, num_key_value_heads=1), 1)
    gains = {site: weights[f"{FIRST}{site}.weight"] + offset for site, offset in OFFSETS.items()}
    gains["norm"] = weights["model.norm.weight"] + 1
    means = sorted(float(gain.mean()) for gain in gains.values())
    assert all(later - earlier > 0.05 for earlier, later in pairwise(means))
    assert min(abs(mean - 1) for mean in means) > 0.05
    for site, gain in gains.items():
        assert gain.std() > 0.1, site
        assert gain.min() > 0, site


def test_every_second_token_has_a_mean_square_near_eps() -> None:
    table = tiny_weights(tiny(), 1)["model.embed_tokens.weight"]
    mean_square = (table.astype(np.float64) ** 2).mean(axis=1)
    loud = np.arange(5, len(table), 8)
    faint = np.setdiff1d(np.arange(1, len(table), 2), loud)
    assert (mean_square[::2] > 0.4).all()
    assert ((mean_square[faint] > 1e-6) & (mean_square[faint] < 1e-5)).all()


def test_some_tokens_have_one_channel_100_times_the_rest() -> None:
    table = np.abs(tiny_weights(tiny(), 1)["model.embed_tokens.weight"])[5::8]
    rest = np.delete(table, 48 // 3, axis=1)
    assert (table[:, 48 // 3] > 50 * np.sqrt((rest**2).mean(axis=1))).all()


def test_one_key_head_has_a_mean_square_near_eps() -> None:
    spec = tiny()
    qkv = tiny_weights(spec, 1)[f"{FIRST}mixer.qkv_proj.weight"].reshape(-1, spec.head_dim, spec.hidden_size)
    mean_square = spec.hidden_size * (qkv.astype(np.float64) ** 2).mean(
        axis=(1, 2)
    )  # of heads, for unit input
    first_key = spec.num_attention_heads
    assert 1e-6 < mean_square[first_key] < 1e-5
    assert (np.delete(mean_square, first_key) > 0.8).all()


def test_the_padding_rows_of_a_head_would_win_if_they_leaked() -> None:
    head = tiny_weights(UNTIED, 1)["lm_head.weight"]
    assert np.abs(head[97:]).mean() > 6 * np.abs(head[:97]).mean()


@pytest.mark.parametrize("spec", [tiny(), tiny_2604()])
def test_attention_scores_spread_over_several_units(spec: Plamo3Spec) -> None:
    weights = {name: torch.from_numpy(w).double() for name, w in tiny_weights(spec, 1).items()}
    d, eps = spec.head_dim, spec.rms_norm_eps
    x = weights["model.embed_tokens.weight"][torch.arange(0, 97, 7)]

    def norm(site: str, values: torch.Tensor) -> torch.Tensor:
        return reference.rms_norm(values, weights[f"{FIRST}{site}.weight"], 1.0, eps, reference.PUBLIC_CASTS)

    qkv = norm("pre_mixer_norm", x) @ weights[f"{FIRST}mixer.qkv_proj.weight"].T
    heads = qkv.view(len(x), -1, d)
    query = norm("mixer.q_norm", heads[:, : spec.num_attention_heads])
    key = norm("mixer.k_norm", heads[:, spec.num_attention_heads : -spec.num_key_value_heads])
    key = key.repeat_interleave(spec.groups, dim=1)
    scores = torch.einsum("thd,shd->hts", query, key) / math.sqrt(d)
    spread = scores.amax(-1) - scores.amin(-1)  # over the keys of a query
    assert float(spread.median()) > 4


def test_a_fresh_model_has_gains_of_zero_and_matrices_of_standard_deviation_0_02() -> None:
    for name, w in tiny_weights(replace(UNTIED, hidden_size=512), 1, "fresh").items():
        if w.ndim == 1:
            assert not w.any(), name
        else:
            assert abs(float(w.std()) - 0.02) < 0.001, name
