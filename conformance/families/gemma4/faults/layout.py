"""How a deviating implementation reads stored weights: which tensor it takes for what (docs/gemma4.md §5).

Arranged weights keep the names and the meaning of a checkpoint, so that the exact relabellings of
parameters hold for them too: arrange first, relabel after.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.gemma4.faults.knobs import Knobs
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["arrange"]

_FLOAT8_LARGEST = 448.0
_PRE, _POST = "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"
_INPUT, _POST_ATTENTION = "input_layernorm.weight", "post_attention_layernorm.weight"
_EXCHANGED_NORMS = {
    "own": {},
    "middle exchanged": {_POST_ATTENTION: _PRE, _PRE: _POST_ATTENTION},
    "pre exchanged": {_INPUT: _PRE, _PRE: _INPUT},
    "post exchanged": {_POST_ATTENTION: _POST, _POST: _POST_ATTENTION},
}
_K, _V = "self_attn.k_proj.weight", "self_attn.v_proj.weight"
_PROJECTIONS = {"own": {}, "exchanged": {_K: _V, _V: _K}, "k_proj for both": {_V: _K}}
_GATE, _UP = "mlp.gate_proj.weight", "mlp.up_proj.weight"
_GATE_UP = {"own": {}, "exchanged": {_GATE: _UP, _UP: _GATE}}


def arrange(spec: Gemma4Spec, weights: Mapping[str, Tensor], knobs: Knobs) -> dict[str, Tensor]:
    """The weights as the implementation takes them."""
    return {name: _arranged(spec, weights, name, knobs) for name in weights}


def _arranged(spec: Gemma4Spec, weights: Mapping[str, Tensor], name: str, knobs: Knobs) -> Tensor:
    prefix, site = _split(name)
    taken = {**_EXCHANGED_NORMS[knobs.norm_weights], **_GATE_UP[knobs.gate_up]}
    if prefix + _V in weights:  # global layers have none
        taken |= _PROJECTIONS[knobs.local_projections]
    w = weights[prefix + taken.get(site, site)]
    if knobs.v_gain == "k_norm" and site == "self_attn.o_proj.weight":
        w = _with_gain_of_keys(spec, weights, name, w)
    return _as_float8(w) if knobs.weights == "float8" and name.endswith("_proj.weight") else w


def _split(name: str) -> tuple[str, str]:
    """The prefix of a layer and the rest of a parameter's name; no prefix outside layers."""
    parts = name.split(".", 3)
    return (".".join(parts[:3]) + ".", parts[3]) if parts[1] == "layers" else ("", name)


def _with_gain_of_keys(spec: Gemma4Spec, weights: Mapping[str, Tensor], name: str, w: Tensor) -> Tensor:
    """o_proj on values that k_norm's weight has multiplied: the same as its columns multiplied."""
    source = spec.kv_layers[int(name.split(".")[2])]
    gain = weights[f"model.layers.{source}.self_attn.k_norm.weight"]
    return w * gain.repeat(spec.num_attention_heads)


def _as_float8(w: Tensor) -> Tensor:
    """Rounded to FP8 with one scale for the tensor."""
    scale = w.abs().max().to(torch.float32).clamp(min=torch.finfo(torch.float32).tiny) / _FLOAT8_LARGEST
    return ((w.to(torch.float32) / scale).to(torch.float8_e4m3fn).to(torch.float32) * scale).to(w.dtype)
