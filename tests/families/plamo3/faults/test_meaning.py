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

from conformance.families.plamo3 import faults
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.faults import find
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset, Step
from tests.families.plamo3.faults.trials import SPECS, spec_of
from tests.families.stepwise.trials import Oracle, real_cells, tokens_of, weights_of

CLOSE = 1e-10
WIDTH = 20
PREFILL = 7

Weights = Mapping[str, Tensor]
MODEL_2604, MODEL_4K = SPECS[0], SPECS[1]
TALL = spec_of("2604", num_hidden_layers=9, sliding_window_pattern=3)


def whole(rows: int = 1, **changes: Any) -> Feed:
    feed = Feed(tokens=tokens_of(MODEL_2604, rows, WIDTH), steps=(Forward(WIDTH),), dtype="float64")
    return replace(feed, **changes)


def decode(**changes: Any) -> Feed:
    return whole(**changes).token_by_token(PREFILL)


def operated(step: Step | None, rows: int = 1, **changes: Any) -> Feed:
    """Half of the tokens, an operation, the rest in a chunk and then one at a time."""
    operation = () if step is None else (step,)
    rest = [Forward(1)] * (WIDTH - 12)
    return whole(rows, steps=(Forward(9), *operation, Forward(3), *rest), **changes)


def agree(
    oracle: Oracle,
    id: str,
    spec: Plamo3Spec,
    feed: Feed,
    other: Plamo3Spec,
    weights: Weights,
    meant: Feed,
) -> None:
    """The fault on (spec, feed) equals the oracle on another model or feed, and matters there."""
    changes = find(faults.FAULTS, id).changes
    arranged = faults.arrange(spec, weights_of(spec, "float64"), changes)
    got = faults.run(spec, arranged, feed, changes).numpy()
    want = oracle.with_weights(other, weights, meant)
    cells = real_cells(feed)
    assert np.abs(got - want)[cells].max() < CLOSE
    assert np.abs(oracle.run(spec, feed) - want)[cells].max() > 1e-4


def far(spec: Plamo3Spec) -> float:
    return spec.max_position_embeddings / spec.initial_context_length


OTHER_MODELS: list[tuple[str, Plamo3Spec, Callable[[Plamo3Spec], Mapping[str, Any]]]] = [
    ("window-one-long", MODEL_2604, lambda spec: {"window_size": spec.window_size + 1}),
    ("window-one-short", MODEL_2604, lambda spec: {"window_size": spec.window_size - 1}),
    ("window-one-short", MODEL_4K, lambda spec: {"window_size": spec.window_size - 1}),
    ("window-missing", MODEL_4K, lambda spec: {"window_size": 1000}),
    ("layers-all-global", MODEL_2604, lambda spec: {"sliding_window_pattern": 1}),
    ("layers-all-local", MODEL_2604, lambda spec: {"sliding_window_pattern": 1000}),
    ("pattern-always-6", TALL, lambda spec: {"sliding_window_pattern": 6}),
    ("pattern-always-8", TALL, lambda spec: {"sliding_window_pattern": 8}),
    ("theta-local-is-global", MODEL_4K, lambda spec: {"rope_local_theta": spec.rope_theta}),
    ("theta-global-is-local", MODEL_2604, lambda spec: {"rope_theta": spec.rope_local_theta}),
    (
        "thetas-exchanged",
        MODEL_2604,
        lambda spec: {"rope_theta": spec.rope_local_theta, "rope_local_theta": spec.rope_theta},
    ),
    ("theta-global-defaulted", SPECS[2], lambda spec: {"rope_theta": 1e6}),
    ("theta-local-defaulted", SPECS[2], lambda spec: {"rope_local_theta": 1e4}),
    (
        "yarn-missing",
        MODEL_2604,
        lambda spec: {"rope_scaling_factor": 1.0, "window_size": spec.window_size - 1},
    ),
    ("yarn-factor-from-lengths", MODEL_2604, lambda spec: {"rope_scaling_factor": far(spec)}),
    (
        "yarn-length-is-maximum",
        MODEL_2604,
        lambda spec: {"initial_context_length": spec.max_position_embeddings},
    ),
    (
        "yarn-length-is-scaled",
        MODEL_2604,
        lambda spec: {"initial_context_length": int(spec.initial_context_length * spec.rope_scaling_factor)},
    ),
    ("eps-1e-5", MODEL_2604, lambda spec: {"rms_norm_eps": 1e-5}),
    ("eps-1e-6", SPECS[2], lambda spec: {"rms_norm_eps": 1e-6}),
    ("head-tied-though-untied", MODEL_4K, lambda spec: {"tie_word_embeddings": True}),
]


@pytest.mark.parametrize(
    ("id", "spec", "changed"), OTHER_MODELS, ids=[f"{id}-{s.release}" for id, s, _ in OTHER_MODELS]
)
def test_a_fault_is_another_configuration(
    oracle: Oracle, id: str, spec: Plamo3Spec, changed: Callable[[Plamo3Spec], Mapping[str, Any]]
) -> None:
    other = replace(spec, **changed(spec))
    for feed in (whole(), decode()):
        agree(oracle, id, spec, feed, other, weights_of(spec, "float64"), feed)


def edited(suffix: str, edit: Callable[[Tensor], Tensor]) -> Callable[[Plamo3Spec, Weights], Weights]:
    """Weights whose tensors of that name are edited."""
    return lambda _, weights: {name: edit(w) if name.endswith(suffix) else w for name, w in weights.items()}


def exchanged(one: str, other: str) -> Callable[[Plamo3Spec, Weights], Weights]:
    """Weights with two tensors of each block exchanged."""

    def exchange(_: Plamo3Spec, weights: Weights) -> Weights:
        return {
            name: weights[name.replace(one, other) if one in name else name.replace(other, one)]
            for name in weights
        }

    return exchange


def interleaved_qkv(spec: Plamo3Spec, weights: Weights) -> Weights:
    """Row blocks taken head by head: a share of query heads, then their key, then their value."""
    d, share = spec.head_dim, spec.groups + 2
    order: dict[str, list[int]] = {"query": [], "key": [], "value": []}
    for head in range(spec.num_attention_heads + 2 * spec.num_key_value_heads):
        role = {spec.groups: "key", spec.groups + 1: "value"}.get(head % share, "query")
        order[role] += range(head * d, (head + 1) * d)
    rows = torch.tensor(order["query"] + order["key"] + order["value"])
    return edited("qkv_proj.weight", lambda w: w[rows])(spec, weights)


def value_before_key(spec: Plamo3Spec, weights: Weights) -> Weights:
    queries, kv = spec.num_attention_heads * spec.head_dim, spec.num_key_value_heads * spec.head_dim
    swap = lambda w: torch.cat([w[:queries], w[queries + kv :], w[queries : queries + kv]])  # noqa: E731
    return edited("qkv_proj.weight", swap)(spec, weights)


def tiled(spec: Plamo3Spec, weights: Weights) -> Weights:
    """Query heads laid so that repeating K/V heads gives each the one that tiling would give."""
    heads = [
        h
        for kv in range(spec.num_key_value_heads)
        for h in range(kv, spec.num_attention_heads, spec.num_key_value_heads)
    ]
    rows = torch.cat([torch.arange(h * spec.head_dim, (h + 1) * spec.head_dim) for h in heads])
    queries = edited("qkv_proj.weight", lambda w: torch.cat([w[rows], w[len(rows) :]]))(spec, weights)
    return edited("o_proj.weight", lambda w: w[:, rows])(spec, queries)


def both_posts(mixer: float, mlp: float) -> Callable[[Plamo3Spec, Weights], Weights]:
    def edit(spec: Plamo3Spec, weights: Weights) -> Weights:
        return edited("post_mlp_norm.weight", lambda w: w + mlp)(
            spec, edited("post_mixer_norm.weight", lambda w: w + mixer)(spec, weights)
        )

    return edit


FIFTH, SMALL = 1 / 5, 5**-1.5
OTHER_WEIGHTS: list[tuple[str, Callable[[Plamo3Spec, Weights], Weights]]] = [
    ("offset-forgotten-pre-mixer", edited("pre_mixer_norm.weight", lambda w: w - 1)),
    ("offset-twice-pre-mlp", edited("pre_mlp_norm.weight", lambda w: w + 1)),
    ("offset-forgotten-post-mixer", edited("post_mixer_norm.weight", lambda w: w - FIFTH)),
    ("offset-twice-post-mlp", edited("post_mlp_norm.weight", lambda w: w + SMALL)),
    ("offset-forgotten-q", edited("q_norm.weight", lambda w: w - 1)),
    ("offset-twice-k", edited("k_norm.weight", lambda w: w + 1)),
    ("offset-forgotten-final", edited("model.norm.weight", lambda w: w - 1)),
    ("offset-one-everywhere", both_posts(1 - FIFTH, 1 - SMALL)),
    ("offset-forgotten-posts", both_posts(-FIFTH, -SMALL)),
    ("offset-posts-exchanged", both_posts(SMALL - FIFTH, FIFTH - SMALL)),
    ("offset-fifth-both-posts", both_posts(0.0, FIFTH - SMALL)),
    ("head-gains-exchanged", exchanged("q_norm", "k_norm")),
    ("gate-up-exchanged", edited("gate_up_proj.weight", lambda w: w.roll(len(w) // 2, dims=0))),
    ("gate-up-interleaved", edited("gate_up_proj.weight", lambda w: torch.cat([w[0::2], w[1::2]]))),
    ("qkv-interleaved", interleaved_qkv),
    ("qkv-value-before-key", value_before_key),
    ("gqa-tiled", tiled),
    (
        "scale-missing",
        lambda spec, w: edited("q_norm.weight", lambda g: (1 + g) * math.sqrt(spec.head_dim) - 1)(spec, w),
    ),
    (
        "scale-twice",
        lambda spec, w: edited("q_norm.weight", lambda g: (1 + g) / math.sqrt(spec.head_dim) - 1)(spec, w),
    ),
    (
        "scale-from-hidden-size",
        lambda spec, w: edited(
            "q_norm.weight",
            lambda g: (1 + g) * math.sqrt(spec.head_dim * spec.num_attention_heads / spec.hidden_size) - 1,
        )(spec, w),
    ),
    (
        "embedding-scaled",
        lambda spec, w: edited("embed_tokens.weight", lambda e: e * math.sqrt(spec.hidden_size))(spec, w),
    ),
    ("head-padding-first", edited("lm_head.weight", lambda w: w.roll(-(len(w) - 97), dims=0))),
]


@pytest.mark.parametrize(("id", "change"), OTHER_WEIGHTS, ids=[id for id, _ in OTHER_WEIGHTS])
def test_a_fault_is_other_weights(
    oracle: Oracle, id: str, change: Callable[[Plamo3Spec, Weights], Weights]
) -> None:
    spec = MODEL_4K  # untied: its embedding can change without its head
    changed = change(spec, weights_of(spec, "float64"))
    agree(oracle, id, spec, whole(), spec, changed, whole())


def positions(*rows: list[int]) -> dict[str, Any]:
    return {"positions": tuple(map(tuple, rows))}


REST = WIDTH - PREFILL
LEFT: dict[str, Any] = {"lengths": (WIDTH, WIDTH - 3), "padding": "left"}
GAPS = positions([3 * n + (n > 8) * 7 for n in range(WIDTH)])
PACKED: dict[str, Any] = {"segments": ((0,) * 6 + (1,) * (WIDTH - 6),)}
COUNTED = list(range(PREFILL))
OTHER_FEEDS: list[tuple[str, Feed, Feed]] = [
    ("position-ids-ignored", whole(**GAPS), whole()),
    ("segments-ignored", whole(**PACKED), whole()),
    ("decode-position-zero", decode(), decode(**positions([*COUNTED, *[0] * REST]))),
    ("decode-position-stuck", decode(), decode(**positions([*COUNTED, *[PREFILL] * REST]))),
    ("decode-position-one-late", decode(), decode(**positions([*COUNTED, *range(PREFILL + 1, WIDTH + 1)]))),
    ("decode-position-one-early", decode(), decode(**positions([*COUNTED, *range(PREFILL - 1, WIDTH - 1)]))),
    (
        "chunk-position-zero",
        whole().split([8, 6, 6]),
        whole(**positions([*range(8), *range(6), *range(6)])).split([8, 6, 6]),
    ),
    (
        "position-capped-at-window",
        decode(),
        decode(**positions([*COUNTED, *[MODEL_2604.window_size] * REST])),
    ),
    (
        "padding-seen",
        whole(2, **LEFT),
        whole(2, **positions(list(range(WIDTH)), [max(0, n - 3) for n in range(WIDTH)])),
    ),
    (
        "rows-share-positions",
        whole(2, positions=(*GAPS["positions"], tuple(range(WIDTH)))),
        whole(2, positions=GAPS["positions"] * 2),
    ),
    (
        "rows-share-mask",
        whole(2, **LEFT),
        whole(2, **positions(list(range(WIDTH)), [max(0, n - 3) for n in range(WIDTH)])),
    ),
    (
        "mask-past-hidden-from-chunks",
        whole().split([8, 6, 6]),
        whole(segments=((0,) * 8 + (1,) * 6 + (2,) * 6,)),
    ),
    ("crop-ignored", operated(Crop(4)), operated(None)),
    ("crop-one-long", operated(Crop(4)), operated(Crop(5))),
    ("crop-one-short", operated(Crop(4)), operated(Crop(3))),
    ("crop-to-zero-ignored", operated(Crop(0)), operated(None)),
    ("crop-past-end-empties", operated(Crop(12)), operated(Reset())),
    (
        "crop-past-end-counted",
        operated(Crop(12)),
        operated(None, **positions([*range(9), *range(12, 12 + WIDTH - 9)])),
    ),
    ("reset-ignored", operated(Reset()), operated(None)),
    ("reorder-ignored", operated(Reorder((1, 0)), 2), operated(None, 2)),
    (
        "training-padding-seen",
        whole(2, mode="training", **LEFT),
        whole(2, **positions(list(range(WIDTH)), [max(0, n - 3) for n in range(WIDTH)])),
    ),
    ("training-segments-ignored", whole(mode="training", **PACKED), whole()),
]


@pytest.mark.parametrize(("id", "feed", "meant"), OTHER_FEEDS, ids=[id for id, _, _ in OTHER_FEEDS])
def test_a_fault_is_another_feed(oracle: Oracle, id: str, feed: Feed, meant: Feed) -> None:
    agree(oracle, id, MODEL_2604, feed, MODEL_2604, weights_of(MODEL_2604, "float64"), meant)


@pytest.mark.parametrize("more", [1, 2])
def test_training_that_masks_one_token_too_late_has_no_window_there(oracle: Oracle, more: int) -> None:
    spec = MODEL_2604
    feed = replace(whole().first(spec.window_span + 1), mode="training", dtype="float64")
    open_window = replace(spec, window_size=1000)
    agree(oracle, "training-mask-one-late", spec, feed, open_window, weights_of(spec, "float64"), feed)
    longer = replace(whole().first(spec.window_span + 1 + more), mode="training")
    changes = find(faults.FAULTS, "training-mask-one-late").changes
    got = faults.run(spec, weights_of(spec, "float64"), longer, changes).numpy()
    assert np.abs(got - oracle.run(spec, longer)).max() < CLOSE


def test_logits_that_are_normalised_or_capped_are_functions_of_the_right_ones(oracle: Oracle) -> None:
    right = torch.from_numpy(oracle.run(MODEL_2604, whole()))
    for id, want in (
        ("logits-normalised", torch.log_softmax(right, dim=-1)),
        ("logits-capped", 30 * torch.tanh(right / 30)),
        ("head-unset-though-tied", torch.zeros_like(right)),
    ):
        changes = find(faults.FAULTS, id).changes
        weights = faults.arrange(MODEL_2604, weights_of(MODEL_2604, "float64"), changes)
        torch.testing.assert_close(
            faults.run(MODEL_2604, weights, whole(), changes), want, rtol=0, atol=CLOSE
        )
