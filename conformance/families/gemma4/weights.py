"""Tiny Gemma 4 weights in which every parameter and every rule of the model leaves a trace.

A fresh initialisation hides most of what is particular to this family: layer scalars of 1, gains of 1,
and with scores that are not scaled an attention that sees one key alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np

from conformance.checkpoints.random import bell, round_to_bfloat16
from conformance.errors import BadInput
from conformance.families.base import LOCAL
from conformance.families.gemma4.parameters import parameter_table
from conformance.families.gemma4.spec import Gemma4Spec

__all__ = ["RECIPES", "tiny_weights"]

RECIPES = ("telling", "fresh")
_FRESH_STANDARD_DEVIATION = 0.02

# Gain (mean, spread) of each norm site. Means differ site by site so that exchanged sites show. The branches'
# are small: eps then matters at every depth, and with it the last layer's scalar, which the final norm
# undoes but for eps. The final gain makes logits of which the softcap takes a few units.
_GAINS: dict[str, tuple[float, float]] = {
    "input_layernorm": (1.25, 0.25),
    "post_attention_layernorm": (0.045, 0.009),
    "pre_feedforward_layernorm": (0.90, 0.25),
    "post_feedforward_layernorm": (0.03, 0.006),
    "norm": (6.0, 1.2),
}
# Of q and k for a head of size 1; their product over the root of the head size is the spread of the scores,
# which nothing scales (docs/gemma4.md §3).
_HEAD_GAINS: dict[str, tuple[float, float]] = {"q_norm": (1.80, 0.40), "k_norm": (1.40, 0.30)}
# Scalars of the first layers, repeated; of the last layer; and their spread as a share of themselves.
_SCALARS, _LAST_SCALAR, _SCALAR_SPREAD = (0.055, 1.40, 0.40), 0.052, 0.02
# Every second token is faint: its embedding has a mean square near eps, so that eps is seen at the first
# norm by all but improbably short texts. Every fourth of those is loud as well: one of its channels is
# about 100 times the rest, so that a subtracted mean is seen.
_FAINT_EVERY, _FAINT_SCALE = 2, 2.0**-9
_LOUD_EVERY, _LOUD_CHANNEL = 8, 0.25
# Of each tensor that makes keys or values, a head whose components are near sqrt(eps) before its norm.
_FAINT_HEAD_SCALE = 2.0**-9


def tiny_weights(spec: Gemma4Spec, seed: int, recipe: str = "telling") -> dict[str, np.ndarray]:
    """Parameter name → float32 array whose values BF16 represents exactly.

    Bit-identical for equal arguments everywhere; no two tensors share a random stream.

    Args:
        spec: whose parameters to make.
        seed: names the weights.
        recipe: `telling`, or `fresh` for the usual initialisation: matrices of standard deviation 0.02,
            gains and scalars of 1.
    """
    if recipe not in RECIPES:
        raise BadInput.value("recipe", recipe, " or ".join(RECIPES))
    stream = json.dumps({"spec": asdict(spec), "seed": seed}, sort_keys=True)
    make = _telling if recipe == "telling" else _fresh
    return {
        name: round_to_bfloat16(make(spec, name, shape, bell(f"{stream} {name}", shape)))
        for name, shape in parameter_table(spec).items()
    }


def _fresh(spec: Gemma4Spec, name: str, shape: tuple[int, ...], noise: np.ndarray) -> np.ndarray:
    return noise * _FRESH_STANDARD_DEVIATION if len(shape) == 2 else np.ones(shape)


def _telling(spec: Gemma4Spec, name: str, shape: tuple[int, ...], noise: np.ndarray) -> np.ndarray:
    parts = name.removesuffix(".weight").split(".")
    site = parts[-1]
    layer = int(parts[2]) if parts[1] == "layers" else None
    if site in _GAINS:
        mean, spread = _GAINS[site]
        return mean + spread * noise
    if site in _HEAD_GAINS:
        mean, spread = _HEAD_GAINS[site]
        return (mean + spread * noise) / math.sqrt(math.sqrt(shape[0]))
    if site == "layer_scalar":
        assert layer is not None
        last = layer + 1 == spec.num_hidden_layers
        return (_LAST_SCALAR if last else _SCALARS[layer % len(_SCALARS)]) * (1 + _SCALAR_SPREAD * noise)
    scaled = noise / math.sqrt(shape[1])
    if site == "embed_tokens":
        return _embedding(scaled)
    if site in ("k_proj", "v_proj"):
        assert layer is not None
        _, head_dim = spec.heads(spec.layer_kinds[layer])
        first = 0 if site == "k_proj" else shape[0] - head_dim
        scaled[first : first + head_dim] *= _FAINT_HEAD_SCALE
    if site == "gate_proj":
        # Gates that reach both tails of gelu; its near-linear middle hides other activations.
        scaled *= 2.0
    if site == "o_proj" and spec.probes == LOCAL and layer == 1:
        # The global layer that must stand behind a local one that is looked at: nothing comes of its mixing.
        scaled *= 0.0
    return scaled


def _embedding(scaled: np.ndarray) -> np.ndarray:
    """Rows of unit length; the model multiplies them by sqrt(D), which gives channels of unit variance."""
    scaled = scaled.copy()
    scaled[1::_FAINT_EVERY] *= _FAINT_SCALE
    channels = scaled.shape[1]
    scaled[5::_LOUD_EVERY, channels // 3] = _LOUD_CHANNEL / math.sqrt(channels)
    return scaled
