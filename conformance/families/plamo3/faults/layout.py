"""How a deviating implementation reads stored weights: which rows it takes for what (docs/plamo3.md §3, §4).

Arranged weights keep the names and the meaning of a checkpoint, so that the exact relabellings of
parameters hold for them too: arrange first, relabel after.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.plamo3.faults.knobs import Knobs
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["arrange"]

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_FLOAT8_LARGEST = 448.0


def arrange(spec: Plamo3Spec, weights: Mapping[str, Tensor], knobs: Knobs) -> dict[str, Tensor]:
    """The weights as the implementation takes them; the model's head is `lm_head.weight` where present."""
    arranged = {name: _arranged(spec, name, w, knobs) for name, w in weights.items()}
    if knobs.head == "embedding":
        arranged.pop(_HEAD, None)
    elif knobs.head == "unset" and spec.tie_word_embeddings:
        arranged[_HEAD] = torch.zeros_like(weights[_EMBEDDING])
    return arranged


def _arranged(spec: Plamo3Spec, name: str, w: Tensor, knobs: Knobs) -> Tensor:
    if name.endswith("mixer.qkv_proj.weight"):
        w = w[_qkv_rows(spec, knobs)] if knobs.qkv != "blocks" else w
    elif name.endswith("mlp.gate_up_proj.weight"):
        if knobs.gate_up == "up first":
            w = torch.cat([w[spec.intermediate_size :], w[: spec.intermediate_size]])
        elif knobs.gate_up == "interleaved":
            w = torch.cat([w[0::2], w[1::2]])
    if knobs.weights == "float8" and name.endswith("_proj.weight"):
        scale = w.abs().max().to(torch.float32) / _FLOAT8_LARGEST
        w = ((w.to(torch.float32) / scale).to(torch.float8_e4m3fn).to(torch.float32) * scale).to(w.dtype)
    return w


def _qkv_rows(spec: Plamo3Spec, knobs: Knobs) -> Tensor:
    """Stored rows in the order query, key, value, for an implementation that reads them otherwise."""
    heads, kv_heads, groups, d = (
        spec.num_attention_heads,
        spec.num_key_value_heads,
        spec.groups,
        spec.head_dim,
    )
    blocks = torch.arange((heads + 2 * kv_heads) * d).view(-1, d)  # one row of indices for each head
    if knobs.qkv == "value before key":
        queries, keys, values = torch.split(blocks, [heads, kv_heads, kv_heads])
        return torch.cat([queries, values, keys]).flatten()
    shares = blocks.view(kv_heads, groups + 2, d)  # each K/V head with its query heads, one after another
    queries, keys, values = torch.split(shares, [groups, 1, 1], dim=1)
    return torch.cat([queries.flatten(), keys.flatten(), values.flatten()])
