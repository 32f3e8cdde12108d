"""The deviating model: PLaMo 3 a second time, fed step by step over a cache, right unless a knob is turned.

The oracle computes whole rows without a cache and has no knobs; this model executes the steps of a feed
as an engine does. With the right knobs both compute the same function (docs/plamo3.md §3 to §8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.plamo3.faults.attention import Step, attention
from conformance.families.plamo3.faults.knobs import RIGHT, Knobs, PostNorm
from conformance.families.plamo3.faults.layers import (
    Block,
    gain,
    mlp,
    residual_eps,
    residual_norm,
)
from conformance.families.plamo3.faults.rope import rotation
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.stepwise.cache import Memory
from conformance.families.stepwise.feeding import execute
from conformance.families.stepwise.numerics import capped, linear, unit, wide
from conformance.families.stepwise.view import Chunk, look
from conformance.feeds import Feed

__all__ = ["Network", "run"]


@dataclass(frozen=True)
class Network:
    """Weights by place, offsets added to the gains of norms, and the kind of each layer."""

    spec: Plamo3Spec
    knobs: Knobs
    embedding: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    head: Tensor
    kinds: tuple[str, ...]


@torch.inference_mode()
def run(spec: Plamo3Spec, weights: Mapping[str, Tensor], feed: Feed, knobs: Knobs = RIGHT) -> Tensor:
    """Run one feed.

    Args:
        spec: the configuration.
        weights: arranged (`layout.arrange`), all in the dtype to compute in; usually the feed's, but a
            diagnosis may compute a BF16 feed in float64.
        feed: any feed.
        knobs: what to do wrong.

    Returns:
        logits [B, T, V] in FP32, or FP64 where the weights are FP64; more than V columns where the knobs
        let padding rows of the head through.
    """
    network = _network(spec, weights, knobs)
    return execute(spec, feed, knobs, partial(_forward, network))


def _forward(network: Network, memory: Memory, chunk: Chunk) -> Tensor:
    """Logits [B, T, V] of one forward step."""
    spec, knobs = network.spec, network.knobs
    dtype = network.embedding.dtype
    steps: dict[str, Step] = {}
    for kind, view in look(memory, chunk, network.kinds).items():
        query_angles = rotation(spec, knobs, kind, view.query_positions, dtype, keys=False)
        key_angles = rotation(spec, knobs, kind, view.key_positions, dtype, keys=True)
        steps[kind] = Step(memory.logs[kind], view, query_angles, key_angles)
    x = network.embedding[chunk.tokens]  # [B, T, D]
    if knobs.embedding_scale == "sqrt":
        x = x * math.sqrt(spec.hidden_size)
    if knobs.residual_width == "wide":
        x = x.to(wide(dtype))
    for layer, (kind, block) in enumerate(zip(network.kinds, network.blocks, strict=True)):
        x = _block(spec, knobs, layer, block, x, steps[kind])
    x = residual_norm(spec, knobs, x, network.norm, dtype) if knobs.final_norm else x.to(dtype)
    head = network.head
    if knobs.head_width == "wide":
        x, head = x.to(wide(dtype)), head.to(wide(dtype))
    logits = capped(linear(x, head, knobs).to(wide(dtype)), knobs.logit_cap)
    return torch.log_softmax(logits, dim=-1) if knobs.logits == "log-softmax" else logits


def _block(spec: Plamo3Spec, knobs: Knobs, layer: int, block: Block, x: Tensor, step: Step) -> Tensor:
    """One layer: two residual branches, each normalised before and after."""
    entered, run = x, block.o_proj.dtype
    inner = residual_norm(spec, knobs, x, block.pre_mixer_norm, run)
    if knobs.upcast == "view in pre_mixer_norm":
        x = _overwritten(spec, knobs, x)
    branch = attention(spec, knobs, layer, block, inner, step)
    x = _added(spec, knobs, x, branch, block.post_mixer_norm, knobs.post_mixer_norm)
    inner = residual_norm(spec, knobs, entered if knobs.block == "parallel" else x, block.pre_mlp_norm, run)
    if knobs.upcast == "view in pre_mlp_norm":
        x = _overwritten(spec, knobs, x)
    return _added(spec, knobs, x, mlp(block, inner, knobs), block.post_mlp_norm, knobs.post_mlp_norm)


def _added(spec: Plamo3Spec, knobs: Knobs, x: Tensor, branch: Tensor, gain: Tensor, rule: PostNorm) -> Tensor:
    """The residual with a branch added to it."""
    match rule:
        case "before-add":
            return x + residual_norm(spec, knobs, branch, gain, branch.dtype)
        case "after-add":
            return residual_norm(spec, knobs, x + branch, gain, branch.dtype)
        case "missing":
            return x + branch


def _overwritten(spec: Plamo3Spec, knobs: Knobs, x: Tensor) -> Tensor:
    """The residual after an in-place norm on its own storage: an up-cast of FP32 to FP32 copies nothing."""
    if x.dtype == torch.bfloat16:
        return x
    return unit(x, residual_eps(spec, knobs), knobs, x.dtype, centred=knobs.centred_residual, axes=(-1,))


# Where a block's parameters are stored, and the knob of the offset of those that are norms.
_SITES = {
    "qkv_proj": ("mixer.qkv_proj", None),
    "o_proj": ("mixer.o_proj", None),
    "q_norm": ("mixer.q_norm", "q_offset"),
    "k_norm": ("mixer.k_norm", "k_offset"),
    "gate_up_proj": ("mlp.gate_up_proj", None),
    "down_proj": ("mlp.down_proj", None),
    "pre_mixer_norm": ("pre_mixer_norm", "pre_mixer_offset"),
    "post_mixer_norm": ("post_mixer_norm", "post_mixer_offset"),
    "pre_mlp_norm": ("pre_mlp_norm", "pre_mlp_offset"),
    "post_mlp_norm": ("post_mlp_norm", "post_mlp_offset"),
}


def _network(spec: Plamo3Spec, weights: Mapping[str, Tensor], knobs: Knobs) -> Network:
    offsets = {name: getattr(knobs, knob) for name, (_, knob) in _SITES.items() if knob}

    def block(layer: int) -> Block:
        prefix = f"model.layers.layers.{layer}."
        stored = {name: weights[f"{prefix}{site}.weight"] for name, (site, _) in _SITES.items()}
        gains = {name: gain(stored[name], offset, knobs) for name, offset in offsets.items()}
        return Block(**{**stored, **gains})

    embedding = weights["model.embed_tokens.weight"]
    head = weights.get("lm_head.weight", embedding)
    if knobs.head_rows == "vocabulary":
        head = head[: spec.vocab_size]
    elif knobs.head_rows == "last":
        head = head[len(head) - spec.vocab_size :]
    return Network(
        spec=spec,
        knobs=knobs,
        embedding=embedding,
        blocks=tuple(block(layer) for layer in range(spec.num_hidden_layers)),
        norm=gain(weights["model.norm.weight"], knobs.final_offset, knobs),
        head=head,
        kinds=_kinds(spec, knobs),
    )


def _kinds(spec: Plamo3Spec, knobs: Knobs) -> tuple[str, ...]:
    """`local` or `global` for every layer."""
    match knobs.kinds:
        case "all local":
            return (LOCAL,) * spec.num_hidden_layers
        case "all global":
            return (GLOBAL,) * spec.num_hidden_layers
    period = spec.sliding_window_pattern if knobs.pattern_constant is None else knobs.pattern_constant
    here, elsewhere = (LOCAL, GLOBAL) if knobs.kinds == "exchanged" else (GLOBAL, LOCAL)
    return tuple(
        here if (layer + knobs.pattern_shift) % period == 0 else elsewhere
        for layer in range(spec.num_hidden_layers)
    )
