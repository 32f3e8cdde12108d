"""What faults mean, said without the deviating model: the oracle on another model, or on another feed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4 import faults
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.faults import find
from conformance.feeds import Feed, Forward
from tests.families.gemma4.faults.trials import SPECS
from tests.families.stepwise.trials import Oracle, tokens_of, weights_of

CLOSE = 1e-9
WIDTH = 20
PREFILL = 7

Weights = Mapping[str, Tensor]
Change = Callable[[Gemma4Spec, Weights], Weights]
PLAIN, SHARING = SPECS[0], SPECS[1]
FEED = Feed(tokens=tokens_of(PLAIN, 1, WIDTH), steps=(Forward(WIDTH),), dtype="float64")
DECODE = FEED.token_by_token(PREFILL)


def agree(
    oracle: Oracle, id: str, spec: Gemma4Spec, other: Gemma4Spec, weights: Weights, feed: Feed, meant: Feed
) -> None:
    """The fault on (spec, feed) equals the oracle on another model or feed, and matters there."""
    changes = find(faults.FAULTS, id).changes
    arranged = faults.arrange(spec, weights_of(spec, "float64"), changes)
    got = faults.run(spec, arranged, feed, changes).numpy()
    want = oracle.with_weights(other, weights, meant)
    assert np.abs(got - want).max() < CLOSE
    assert np.abs(oracle.run(spec, feed) - want).max() > 1e-4


OTHER_MODELS: list[tuple[str, Gemma4Spec, dict[str, Any]]] = [
    ("window-one-long", PLAIN, {"window_size": 5}),
    ("window-one-short", PLAIN, {"window_size": 3}),
    ("window-missing", SHARING, {"window_size": 1000}),
    ("theta-local-is-global", PLAIN, {"rope_local_theta": PLAIN.rope_theta}),
    ("theta-global-is-local", SHARING, {"rope_theta": SHARING.rope_local_theta}),
    (
        "thetas-exchanged",
        PLAIN,
        {"rope_theta": PLAIN.rope_local_theta, "rope_local_theta": PLAIN.rope_theta},
    ),
    ("theta-local-defaulted", SHARING, {"rope_local_theta": 1e4}),
    ("theta-global-defaulted", SHARING, {"rope_theta": 1e6}),
    ("partial-rope-missing", PLAIN, {"partial_rotary_factor": 1.0}),
    ("partial-rope-twice-as-many", PLAIN, {"partial_rotary_factor": 0.5}),
    ("partial-rope-half-as-many", SHARING, {"partial_rotary_factor": 0.25}),
    ("partial-rope-defaulted", SHARING, {"partial_rotary_factor": 0.25}),
    ("eps-1e-5", PLAIN, {"rms_norm_eps": 1e-5}),
    ("eps-1e-6", SHARING, {"rms_norm_eps": 1e-6}),
    ("softcap-defaulted", SHARING, {"final_logit_softcapping": 30.0}),
    ("softcap-missing", PLAIN, {"final_logit_softcapping": 1e8}),
    ("sharing-one-layer-more", SHARING, {"num_kv_shared_layers": 3}),
]


@pytest.mark.parametrize(("id", "spec", "changed"), OTHER_MODELS, ids=[id for id, *_ in OTHER_MODELS])
def test_a_fault_is_another_configuration(
    oracle: Oracle, id: str, spec: Gemma4Spec, changed: dict[str, Any]
) -> None:
    other = replace(spec, **changed)
    for feed in (FEED, DECODE):
        agree(oracle, id, spec, other, weights_of(spec, "float64"), feed, feed)


def edited(suffix: str, edit: Callable[[Tensor], Tensor], kind: str | None = None) -> Change:
    """Weights whose tensors of that name are edited, in all layers or in those of one kind."""

    def change(spec: Gemma4Spec, weights: Weights) -> Weights:
        def meant(name: str) -> bool:
            return name.endswith(suffix) and (kind is None or spec.layer_kinds[layer_of(name)] == kind)

        return {name: edit(w) if meant(name) else w for name, w in weights.items()}

    return change


def layer_of(name: str) -> int:
    return int(name.split(".")[2])


def exchanged(one: str, other: str) -> Change:
    """Weights with two tensors of each block exchanged, where it has both."""

    def partner(name: str, weights: Weights) -> str:
        found = name.replace(one, other) if one in name else name.replace(other, one)
        return found if found in weights else name

    return lambda _, weights: {name: weights[partner(name, weights)] for name in weights}


def several(*changes: Change) -> Change:
    """One change after another."""

    def change(spec: Gemma4Spec, weights: Weights) -> Weights:
        for one in changes:
            weights = one(spec, weights)
        return weights

    return change


def scaled_queries(local: float, globally: float) -> Change:
    return several(
        edited("q_norm.weight", lambda w: w / math.sqrt(local), LOCAL),
        edited("q_norm.weight", lambda w: w / math.sqrt(globally), GLOBAL),
    )


def scalars_in_posts(spec: Gemma4Spec, weights: Weights) -> Weights:
    """The gains of post-norms times the layer scalar, which becomes 1."""
    folded = dict(weights)
    for name, w in weights.items():
        if name.endswith("layer_scalar"):
            for site in ("post_attention", "post_feedforward"):
                gain = name.replace("layer_scalar", f"{site}_layernorm.weight")
                folded[gain] = weights[gain] * w
            folded[name] = torch.ones_like(w)
    return folded


def first_scalar(_: Gemma4Spec, weights: Weights) -> Weights:
    first = weights["model.layers.0.layer_scalar"]
    return {name: first if name.endswith("layer_scalar") else w for name, w in weights.items()}


def values_from_keys(_: Gemma4Spec, weights: Weights) -> Weights:
    return {name: weights[name.replace("v_proj", "k_proj")] for name in weights}


def tiled(spec: Gemma4Spec, weights: Weights) -> Weights:
    """Query heads laid so that repeating K/V heads gives each the one that tiling would give."""
    changed = dict(weights)
    for name, w in weights.items():
        if name.endswith(("q_proj.weight", "o_proj.weight")):
            kv_heads, d = spec.heads(spec.layer_kinds[layer_of(name)])
            heads = [h for kv in range(kv_heads) for h in range(kv, spec.num_attention_heads, kv_heads)]
            rows = torch.cat([torch.arange(h * d, (h + 1) * d) for h in heads])
            changed[name] = w[rows] if name.endswith("q_proj.weight") else w[:, rows]
    return changed


def paired_inside(spec: Gemma4Spec, weights: Weights) -> Weights:
    """Components of global heads laid so that those of the span lie where pairs turn."""
    d, turning = spec.global_head_dim, spec.rotated_pairs
    passing = list(range(2 * turning, d))
    half = d // 2 - turning
    order = [*range(turning), *passing[:half], *range(turning, 2 * turning), *passing[half:]]
    heads = {
        "q_proj": spec.num_attention_heads,
        "k_proj": spec.num_global_key_value_heads,
        "o_proj": spec.num_attention_heads,
        "q_norm": 1,
        "k_norm": 1,
    }
    changed = dict(weights)
    for name, w in weights.items():
        site = name.split(".")[-2]
        if site in heads and spec.layer_kinds[layer_of(name)] == GLOBAL:
            rows = torch.tensor([head * d + place for head in range(heads[site]) for place in order])
            changed[name] = w[:, rows] if site == "o_proj" else w[rows]
    return changed


def gains_of_keys(spec: Gemma4Spec, weights: Weights) -> Weights:
    """o_proj that multiplies each component of a value by the gain of that component of a key."""
    changed = dict(weights)
    for layer, source in enumerate(spec.kv_layers):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        gain = weights[f"model.layers.{source}.self_attn.k_norm.weight"]
        columns = weights[name].view(spec.hidden_size, spec.num_attention_heads, -1) * gain
        changed[name] = columns.flatten(1)
    return changed


def plus_one(site: str) -> Change:
    return edited(f"{site}.weight", lambda w: w + 1)


PAIR = ("post_attention_layernorm", "pre_feedforward_layernorm")
OTHER_WEIGHTS: list[tuple[str, Gemma4Spec, Change]] = [
    ("gain-plus-one-input", PLAIN, plus_one("input_layernorm")),
    ("gain-plus-one-post-attention", SHARING, plus_one("post_attention_layernorm")),
    ("gain-plus-one-pre-feedforward", PLAIN, plus_one("pre_feedforward_layernorm")),
    ("gain-plus-one-post-feedforward", PLAIN, plus_one("post_feedforward_layernorm")),
    ("gain-plus-one-q", SHARING, plus_one("q_norm")),
    ("gain-plus-one-k", SHARING, plus_one("k_norm")),
    ("gain-plus-one-final", PLAIN, plus_one("model.norm")),
    ("gain-plus-one-everywhere", SHARING, plus_one("norm")),
    ("norm-weights-middle-exchanged", PLAIN, exchanged(*PAIR)),
    ("norm-weights-pre-exchanged", PLAIN, exchanged("input_layernorm", PAIR[1])),
    ("norm-weights-post-exchanged", PLAIN, exchanged(PAIR[0], "post_feedforward_layernorm")),
    ("head-gains-exchanged", PLAIN, exchanged("q_norm", "k_norm")),
    ("v-norm-with-gain", SHARING, gains_of_keys),
    ("layer-scalar-missing", PLAIN, edited("layer_scalar", torch.ones_like)),
    ("layer-scalar-twice", SHARING, edited("layer_scalar", torch.square)),
    ("layer-scalar-on-branches", PLAIN, scalars_in_posts),
    ("layer-scalar-of-first-layer", SHARING, first_scalar),
    ("gate-up-exchanged", PLAIN, exchanged("gate_proj", "up_proj")),
    ("key-and-value-exchanged", SHARING, exchanged("k_proj", "v_proj")),
    ("value-from-key-on-local-layers-too", SHARING, values_from_keys),
    ("gqa-tiled", SHARING, tiled),
    ("scale-by-head", PLAIN, scaled_queries(16, 32)),
    ("scale-by-local-head", PLAIN, scaled_queries(16, 16)),
    ("scale-by-global-head", PLAIN, scaled_queries(32, 32)),
    ("scale-by-head-local", PLAIN, scaled_queries(16, 1)),
    ("scale-by-head-global", SHARING, scaled_queries(1, 32)),
    ("scale-from-hidden-size", SHARING, scaled_queries(48 / 6, 48 / 6)),
    ("partial-rope-paired-inside", SHARING, paired_inside),
]


@pytest.mark.parametrize(("id", "spec", "change"), OTHER_WEIGHTS, ids=[id for id, *_ in OTHER_WEIGHTS])
def test_a_fault_is_other_weights(oracle: Oracle, id: str, spec: Gemma4Spec, change: Change) -> None:
    changed = change(spec, weights_of(spec, "float64"))
    for feed in (FEED, DECODE):
        agree(oracle, id, spec, spec, changed, feed, feed)


def test_layers_that_share_and_project_nothing_mix_nothing(oracle: Oracle) -> None:
    shared = [layer for layer, source in enumerate(SHARING.kv_layers) if layer != source]
    names = {f"model.layers.{layer}.self_attn.o_proj.weight" for layer in shared}
    weights = {n: w * 0 if n in names else w for n, w in weights_of(SHARING, "float64").items()}
    agree(oracle, "sharing-projects-nothing", SHARING, SHARING, weights, DECODE, DECODE)


def unshared(spec: Gemma4Spec, weights: Weights) -> tuple[Gemma4Spec, Weights]:
    """The model with every layer's own projections, copied from those that it would share."""
    changed = dict(weights)
    for layer, source in enumerate(spec.kv_layers):
        for site in ("k_proj", "v_proj", "k_norm"):
            name = f"model.layers.{source}.self_attn.{site}.weight"
            if name in weights:
                changed[f"model.layers.{layer}.self_attn.{site}.weight"] = weights[name]
    return replace(spec, num_kv_shared_layers=0), changed


def test_layers_that_share_and_project_are_layers_that_do_not_share(oracle: Oracle) -> None:
    other, weights = unshared(SHARING, weights_of(SHARING, "float64"))
    for feed in (FEED, DECODE):
        agree(oracle, "sharing-projects-its-own", SHARING, other, weights, feed, feed)
    agree(oracle, "sharing-projects-its-own-without-a-cache", SHARING, other, weights, FEED, FEED)


def test_logits_that_are_normalised_clamped_or_capped_again_are_functions_of_the_right_ones(
    oracle: Oracle,
) -> None:
    right = torch.from_numpy(oracle.run(PLAIN, FEED))
    raw = 30 * torch.atanh(right / 30)
    for id, want in (
        ("logits-normalised", torch.log_softmax(right, dim=-1)),
        ("softcap-twice", 30 * torch.tanh(right / 30)),
        ("softcap-clamps", raw.clamp(-30, 30)),
        ("head-unset-though-tied", torch.zeros_like(right)),
        ("head-scaled-as-embedding", 30 * torch.tanh(raw * math.sqrt(48) / 30)),
    ):
        changes = find(faults.FAULTS, id).changes
        weights = faults.arrange(PLAIN, weights_of(PLAIN, "float64"), changes)
        torch.testing.assert_close(faults.run(PLAIN, weights, FEED, changes), want, rtol=0, atol=CLOSE)
