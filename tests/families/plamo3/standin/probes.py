"""What tests ask of the stand-ins inside their environments: plain data in and out.

Called through tests/backends/transformers/calls.py; the adapter comes first, for it says where
Transformers keeps its copies of remote code.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

import torch

from tests.backends.transformers.probes import adapter, prepared

Rows = list[list[int]]


@cache
def network(directory: str, dtype: str = "float32") -> Any:
    """The model of a directory, in evaluation mode."""
    return adapter()._load(prepared(directory).directory, dtype)


def code_of(directory: str) -> Any:
    """The module of remote code that holds the model."""
    return sys.modules[type(network(directory)).__module__]


# Configurations


def config(directory: str) -> dict[str, Any]:
    """What follows from a directory's config.json, as AutoConfig reads it."""
    adapter()
    auto = importlib.import_module("transformers").AutoConfig
    found = auto.from_pretrained(str(prepared(directory).directory), trust_remote_code=True)
    stored = found.to_dict()
    return {
        "class": type(found).__name__,
        "layer_types": found.layer_types,
        "interleaved_sliding_window": found.interleaved_sliding_window,
        "sliding_window": found.sliding_window,
        "rope_parameters": found.rope_parameters,
        "tie_word_embeddings": found.tie_word_embeddings,
        "keys": {key: getattr(found, key) for key in KEYS},
        "stored": {key: stored[key] for key in (*KEYS, *DERIVED) if key in stored},
    }


KEYS = (
    "rms_norm_eps",
    "sliding_window_pattern",
    "rope_local_theta",
    "rope_theta",
    "initial_context_length",
    "rope_scaling_factor",
    "scale_embedding",
)
DERIVED = ("layer_types", "interleaved_sliding_window", "sliding_window", "rope_parameters", "rope_scaling")


def saved_and_read(directory: str, target: str) -> dict[str, Any]:
    """`config` of a copy that Transformers itself wrote."""
    adapter()
    auto = importlib.import_module("transformers").AutoConfig
    auto.from_pretrained(str(prepared(directory).directory), trust_remote_code=True).save_pretrained(target)
    return config(target)


# Caches


def cached(directory: str, chunks: list[Rows]) -> dict[str, Any]:
    """Caches after feeding chunks: their classes, tokens kept and seen, and the first layer's keys."""
    model = network(directory)
    past: Any = None
    kept = []
    with torch.no_grad():
        for chunk in chunks:
            answer = model(input_ids=torch.tensor(chunk), past_key_values=past, use_cache=True)
            past = answer.past_key_values
            kept.append([keys.shape[2] for keys, _ in layers_of(past)])
    keys, values = layers_of(past)[0]
    return {
        "cache": type(past).__name__,
        "layers": [type(layer).__name__ for layer in getattr(past, "layers", [])],
        "kept": kept,
        "seen": past.get_seq_length(len(layers_of(past)) - 1),
        "keys": keys[0].tolist(),
        "values": values[0].tolist(),
    }


def layers_of(past: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values [B, K, kept, d] of every layer."""
    if hasattr(past, "layers"):
        return [(layer.keys, layer.values) for layer in past.layers]
    return list(zip(past.keys, past.values, strict=True))


def projected(directory: str, row: list[int]) -> dict[str, Any]:
    """Keys after k_norm, and values, [K, T, d], of the first layer, computed from its parts."""
    model = network(directory)
    block = model.model.layers.layers[0]
    with torch.no_grad():
        x = block.pre_mixer_norm(model.model.embed_tokens(torch.tensor([row])))
        _, k, v = block.mixer.qkv_proj(x).split(block.mixer.widths, dim=-1)
        k, v = (t.view(len(row), -1, block.mixer.head_dim) for t in (k, v))
        return {
            "keys": block.mixer.k_norm(k).transpose(0, 1).tolist(),
            "values": v.transpose(0, 1).tolist(),
        }


def operated(directory: str, rows: Rows, operation: str, *arguments: Any) -> list[Any]:
    """[tokens kept, first layer's keys] before a cache operation and after it."""
    model = network(directory)
    with torch.no_grad():
        past = model(input_ids=torch.tensor(rows), use_cache=True).past_key_values
    before = [None if k is None else k.tolist() for k, _ in layers_of(past)]
    getattr(past, operation)(*(torch.tensor(a) if isinstance(a, list) else a for a in arguments))
    after = [None if k is None else k.tolist() for k, _ in layers_of(past)]
    return [before, after, [past.get_seq_length(layer) for layer in range(len(after))]]


# Forward passes


def forward(
    directory: str, rows: Rows, *, training: bool = False, dtype: str = "float32", **given: Any
) -> dict[str, Any]:
    """Logits of one call in either mode, whatever else the model is given, and whether it made a cache."""
    model = network(directory, dtype)
    model.train(training)
    inputs = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in given.items()}
    try:
        with torch.no_grad():
            answer = model(input_ids=torch.tensor(rows), **inputs)
    finally:
        model.eval()
    return {"logits": answer.logits.tolist(), "cache": answer.past_key_values is not None}


def call(directory: str, rows: Rows, given: dict[str, Any]) -> dict[str, Any]:
    """`forward` with keyword arguments as data."""
    return forward(directory, rows, **given)


def on_top(directory: str, first: Rows, then: Rows, mask: list[list[int]]) -> list[Any]:
    """Logits of a second chunk that comes with a mask."""
    model = network(directory)
    with torch.no_grad():
        past = model(input_ids=torch.tensor(first), use_cache=True).past_key_values
        answer = model(input_ids=torch.tensor(then), past_key_values=past, attention_mask=torch.tensor(mask))
    return answer.logits.tolist()  # type: ignore[no-any-return]


def band(directory: str, new: int, keys: int, window: int | None) -> list[list[int]]:
    """[T, S]: which keys a layer's queries see."""
    seen = code_of(directory).visibility(new, keys, window, None, torch.device("cpu"))
    return seen.long().tolist()  # type: ignore[no-any-return]


def rotary(directory: str, layer: int) -> dict[str, Any]:
    """Inverse frequencies and amplitude of a layer's RoPE, and cos and sin of position 3."""
    table = network(directory).model.layers.layers[layer].mixer.rotary
    cos, sin = table(4, torch.zeros(1, dtype=torch.float64))
    return {
        "frequencies": table.frequencies,
        "amplitude": getattr(table, "amplitude", 1.0),
        "cos": cos[3].tolist(),
        "sin": sin[3].tolist(),
    }


def modules(directory: str) -> dict[str, Any]:
    """Offsets of every norm of a block and of the last one, the head's rows, and whether it is tied."""
    model = network(directory)
    block = model.model.layers.layers[0]
    norms = {"norm": model.model.norm, "q_norm": block.mixer.q_norm, "k_norm": block.mixer.k_norm}
    for name in ("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm"):
        norms[name] = getattr(block, name)
    return {
        "offsets": {name: norm.offset for name, norm in norms.items()},
        "head": list(model.lm_head.weight.shape),
        "tied": model.lm_head.weight is model.model.embed_tokens.weight,
    }
