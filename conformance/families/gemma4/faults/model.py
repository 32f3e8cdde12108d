"""The deviating model: Gemma 4 a second time, fed step by step over a cache, right unless a knob is turned.

The oracle computes whole rows without a cache and has no knobs; this model executes the steps of a feed
as an engine does. With the right knobs both compute the same function (docs/gemma4.md §2 to §4, §7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4.faults.attention import Step, attention, keys_and_values
from conformance.families.gemma4.faults.knobs import RIGHT, Knobs, PostNorm
from conformance.families.gemma4.faults.layers import Block, mlp, overwritten, residual_norm, softcapped
from conformance.families.gemma4.faults.rope import rotation
from conformance.families.gemma4.spec import Gemma4Spec, default_layer_types
from conformance.families.stepwise.cache import Memory
from conformance.families.stepwise.feeding import execute
from conformance.families.stepwise.numerics import linear, wide
from conformance.families.stepwise.view import Chunk, look
from conformance.feeds import Feed

__all__ = ["Network", "run"]


@dataclass(frozen=True)
class Network:
    """Weights by place, and for every layer what it is masked as and whose keys and values it attends."""

    spec: Gemma4Spec
    knobs: Knobs
    embedding: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    masks: tuple[str, ...]
    sources: tuple[int, ...]


@torch.inference_mode()
def run(spec: Gemma4Spec, weights: Mapping[str, Tensor], feed: Feed, knobs: Knobs = RIGHT) -> Tensor:
    """Run one feed.

    Args:
        spec: the configuration.
        weights: arranged (`layout.arrange`), all in the dtype to compute in; usually the feed's, but a
            diagnosis may compute a BF16 feed in float64.
        feed: any feed.
        knobs: what to do wrong.

    Returns:
        logits [B, T, V] in FP32, or FP64 where the weights are FP64.
    """
    return execute(spec, feed, knobs, partial(_forward, _network(spec, weights, knobs)))


def _forward(network: Network, memory: Memory, chunk: Chunk) -> Tensor:
    """Logits [B, T, V] of one forward step."""
    spec, knobs = network.spec, network.knobs
    dtype = network.embedding.dtype
    past = memory.count > 0
    views = look(memory, chunk)
    steps: dict[tuple[str, str], Step] = {}
    for block, mask in zip(network.blocks, network.masks, strict=True):
        if (block.kind, mask) not in steps:
            view = views[mask]
            query_angles = rotation(spec, knobs, block.kind, view.query_positions, dtype)
            key_angles = rotation(spec, knobs, block.kind, view.key_positions, dtype)
            steps[block.kind, mask] = Step(memory.logs[mask], view, query_angles, key_angles)
    x = _embedded(network, chunk.tokens)  # [B, T, D]
    taken: dict[int, tuple[Tensor, Tensor]] = {}  # layer → K and V of the new tokens
    for layer, (block, mask) in enumerate(zip(network.blocks, network.masks, strict=True)):
        projects = _projects(network, layer, past=past, whole=chunk.columns == chunk.total)
        x = _block(network, layer, x, taken, steps[block.kind, mask], projects=projects)
    x = (
        residual_norm(spec, knobs, x, network.norm, knobs.final_offset, dtype)
        if knobs.final_norm
        else x.to(dtype)
    )
    head = _head(network)
    if knobs.head_width == "wide":
        x, head = x.to(wide(dtype)), head.to(wide(dtype))
    logits = softcapped(spec, linear(x, head, knobs), knobs).to(wide(dtype))
    return torch.log_softmax(logits, dim=-1) if knobs.logits == "log-softmax" else logits


def _embedded(network: Network, tokens: Tensor) -> Tensor:
    """Embeddings [B, T, D] times sqrt(D), which is rounded to the run's dtype first."""
    knobs, dtype = network.knobs, network.embedding.dtype
    x = network.embedding[tokens]
    exact = torch.tensor(math.sqrt(network.spec.hidden_size), dtype=torch.float64)
    match knobs.embedding_factor:
        case "rounded":
            x = x * exact.to(dtype)
        case "unrounded":
            x = (x.to(wide(dtype)) * exact.to(wide(dtype))).to(dtype)
        case "bfloat16":
            x = x * exact.to(torch.bfloat16).to(dtype)
        case "missing":
            pass
    return x.to(wide(dtype)) if knobs.residual_width == "wide" else x


def _head(network: Network) -> Tensor:
    """The head [V, D]: the embedding."""
    match network.knobs.head:
        case "embedding":
            return network.embedding
        case "unset":
            return torch.zeros_like(network.embedding)
        case "scaled embedding":
            return network.embedding * math.sqrt(network.spec.hidden_size)


def _projects(network: Network, layer: int, *, past: bool, whole: bool) -> bool:
    """Does the layer make keys and values from its own input?"""
    if network.sources[layer] == layer:
        return True
    match network.knobs.sharing:
        case "own projections":
            return True
        case "own projections without a cache":
            return whole
        case "own projections on a cache":
            return past
    return False


def _block(
    network: Network,
    layer: int,
    x: Tensor,
    taken: dict[int, tuple[Tensor, Tensor]],
    step: Step,
    *,
    projects: bool,
) -> Tensor:
    """One layer: two residual branches, each normalised before and after, and the layer scalar."""
    spec, knobs, block = network.spec, network.knobs, network.blocks[layer]
    entered, run = x, block.o_proj.dtype
    first = knobs.layer_scalar == "stream, of layer 0"
    scalar = network.blocks[0].layer_scalar if first else block.layer_scalar
    one = torch.ones_like(scalar)
    where = knobs.layer_scalar

    inner = residual_norm(spec, knobs, x, block.input_norm, knobs.input_offset, run)
    if knobs.upcast == "view in input norm":
        x = overwritten(spec, knobs, x)
    angles = None if step.key_angles is None else step.key_angles.last(inner.shape[1])
    shares = network.sources[layer] != layer
    if projects:
        taken[layer] = keys_and_values(spec, knobs, block, inner, angles)
    else:
        k, v = taken[network.sources[layer]]
        zeros = knobs.sharing == "zeros"
        taken[layer] = (torch.zeros_like(k), torch.zeros_like(v)) if zeros else (k, v)
    branch = attention(spec, knobs, layer, block, inner, taken[layer], step, shares=shares)
    scaled = scalar if where in ("both branches", "attention branch") else one
    gain, offset = block.post_attention_norm, knobs.post_attention_offset
    x = _added(network, x, branch, gain, offset, knobs.post_attention_norm, scaled)
    if where in ("stream after attention", "stream after both"):
        x = x * scalar

    before = entered if knobs.block == "parallel" else x
    inner = residual_norm(spec, knobs, before, block.pre_feedforward_norm, knobs.pre_feedforward_offset, run)
    if knobs.upcast == "view in pre_feedforward norm":
        x = overwritten(spec, knobs, x)
    if where == "residual":
        x = x * scalar
    scaled = scalar if where in ("both branches", "mlp branch") else one
    gain, offset = block.post_feedforward_norm, knobs.post_feedforward_offset
    x = _added(network, x, mlp(block, inner, knobs), gain, offset, knobs.post_feedforward_norm, scaled)
    if where in ("stream", "stream twice", "stream after both", "stream, of layer 0"):
        x = x * scalar
    return x * scalar if where == "stream twice" else x


def _added(
    network: Network, x: Tensor, branch: Tensor, gain: Tensor, offset: float, rule: PostNorm, scaled: Tensor
) -> Tensor:
    """The residual with a branch, times `scaled`, added to it."""
    spec, knobs = network.spec, network.knobs
    match rule:
        case "before-add":
            return x + residual_norm(spec, knobs, branch, gain, offset, branch.dtype) * scaled
        case "after-add":
            return residual_norm(spec, knobs, x + branch * scaled, gain, offset, branch.dtype)
        case "missing":
            return x + branch * scaled


# Where a block's parameters are stored: those of the layer, and those of the layer it takes K and V from.
_SITES = {
    "q_proj": "self_attn.q_proj.weight",
    "o_proj": "self_attn.o_proj.weight",
    "q_norm": "self_attn.q_norm.weight",
    "gate_proj": "mlp.gate_proj.weight",
    "up_proj": "mlp.up_proj.weight",
    "down_proj": "mlp.down_proj.weight",
    "input_norm": "input_layernorm.weight",
    "post_attention_norm": "post_attention_layernorm.weight",
    "pre_feedforward_norm": "pre_feedforward_layernorm.weight",
    "post_feedforward_norm": "post_feedforward_layernorm.weight",
    "layer_scalar": "layer_scalar",
}
_KV_SITES = {
    "k_proj": "self_attn.k_proj.weight",
    "v_proj": "self_attn.v_proj.weight",
    "k_norm": "self_attn.k_norm.weight",
}


def _network(spec: Gemma4Spec, weights: Mapping[str, Tensor], knobs: Knobs) -> Network:
    sources = _sources(spec, knobs)

    def block(layer: int) -> Block:
        own, source = f"model.layers.{layer}.", f"model.layers.{sources[layer]}."
        return Block(
            kind=spec.layer_kinds[layer],
            **{name: weights[own + site] for name, site in _SITES.items()},
            **{name: weights.get(source + site) for name, site in _KV_SITES.items()},  # type: ignore[arg-type]
        )

    return Network(
        spec=spec,
        knobs=knobs,
        embedding=weights["model.embed_tokens.weight"],
        blocks=tuple(block(layer) for layer in range(spec.num_hidden_layers)),
        norm=weights["model.norm.weight"],
        masks=_masks(spec, knobs),
        sources=sources,
    )


def _masks(spec: Gemma4Spec, knobs: Knobs) -> tuple[str, ...]:
    """`local` or `global` for every layer: the kind that it is masked as."""
    kinds = spec.layer_kinds
    if knobs.kinds == "every sixth":
        names = default_layer_types(spec.num_hidden_layers)
        kinds = tuple(GLOBAL if name == "full_attention" else LOCAL for name in names)
    elif knobs.kinds == "exchanged":
        kinds = tuple(LOCAL if kind == GLOBAL else GLOBAL for kind in kinds)
    return tuple(kinds[(layer - knobs.pattern_shift) % len(kinds)] for layer in range(len(kinds)))


def _sources(spec: Gemma4Spec, knobs: Knobs) -> tuple[int, ...]:
    """For every layer, the layer whose keys and values it attends."""
    kinds = spec.layer_kinds
    own = spec.num_hidden_layers - spec.num_kv_shared_layers
    if spec.num_kv_shared_layers:
        fewer = own - knobs.sharing_layers
        own = fewer if set(kinds[fewer:]) <= set(kinds[:fewer]) else own
    first = {kind: kinds.index(kind) for kind in kinds}
    last = {kind: layer for layer, kind in enumerate(kinds[:own])}
    source = first if knobs.sharing == "of the first layer" else last
    return tuple(layer if layer < own else source[kind] for layer, kind in enumerate(kinds))
