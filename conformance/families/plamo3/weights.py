"""Tiny PLaMo 3 weights in which every parameter and every rule of the model leaves a trace.

Fresh initialisations hide bugs: zero norm weights hide offsets, a standard deviation of 0.02 makes
attention uniform, unit variance hides eps. docs/checkpoints.md lists what each choice here is for.
"""

from __future__ import annotations

import json
import math

import numpy as np

from conformance.checkpoints.random import bell, round_to_bfloat16
from conformance.errors import BadInput
from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.spec import Plamo3Spec

__all__ = ["RECIPES", "tiny_weights"]

RECIPES = ("telling", "fresh")
_FRESH_STANDARD_DEVIATION = 0.02

# Effective gain (mean, spread) of each norm site, and the offset c that the stored weight leaves out
# (docs/plamo3.md §4). Means differ site by site so that exchanged sites or offsets show.
_GAINS: dict[str, tuple[float, float, float]] = {
    "pre_mixer_norm": (1.25, 0.25, 1.0),
    "post_mixer_norm": (0.75, 0.20, 1.0 / 5),
    "pre_mlp_norm": (0.90, 0.25, 1.0),
    "post_mlp_norm": (0.55, 0.15, 1.0 / (5.0 * math.sqrt(5.0))),  # 5^-1.5, but pow is no IEEE operation
    "q_norm": (1.80, 0.40, 1.0),
    "k_norm": (1.40, 0.30, 1.0),
    "norm": (1.50, 0.30, 1.0),
}
# Every second token is faint: its embedding has a mean square near eps, so that eps is seen at the first
# norm by all but improbably short texts. Every fourth of those is loud as well: one of its channels is
# about 100 times the rest, so that a subtracted mean is seen; still small as a whole, for a loud row
# of a tied head would drown every other logit's rounding.
_FAINT_EVERY, _FAINT_SCALE = 2, 2.0**-9
_LOUD_EVERY, _LOUD_CHANNEL = 8, 0.25
# A key head whose components are near sqrt(eps) before k_norm, so that eps inside q/k norm is seen.
_FAINT_HEAD_SCALE = 2.0**-9


def tiny_weights(spec: Plamo3Spec, seed: int, recipe: str = "telling") -> dict[str, np.ndarray]:
    """Parameter name → float32 array whose values BF16 represents exactly.

    Bit-identical for equal arguments everywhere; no two tensors share a random stream.

    Args:
        spec: whose parameters to make.
        seed: names the weights.
        recipe: `telling`, or `fresh` for the usual initialisation: matrices of standard deviation 0.02
            and norm weights of zero, as the published small-model figures have it.
    """
    if recipe not in RECIPES:
        raise BadInput.value("recipe", recipe, " or ".join(RECIPES))
    stream = json.dumps({"spec": spec.to_dict(), "seed": seed}, sort_keys=True)
    make = _telling if recipe == "telling" else _fresh
    return {
        name: round_to_bfloat16(make(spec, name, shape, bell(f"{stream} {name}", shape)))
        for name, shape in parameter_table(spec).items()
    }


def _fresh(spec: Plamo3Spec, name: str, shape: tuple[int, ...], noise: np.ndarray) -> np.ndarray:
    return noise * _FRESH_STANDARD_DEVIATION if len(shape) == 2 else np.zeros(shape)


def _telling(spec: Plamo3Spec, name: str, shape: tuple[int, ...], noise: np.ndarray) -> np.ndarray:
    site = name.split(".")[-2]
    if site in _GAINS:
        mean, spread, offset = _GAINS[site]
        return mean + spread * noise - offset
    if site == "embed_tokens":
        return _embedding(noise)
    scaled = noise / math.sqrt(shape[1])
    if site == "qkv_proj":
        first_key = spec.num_attention_heads * spec.head_dim
        scaled[first_key : first_key + spec.head_dim] *= _FAINT_HEAD_SCALE
    if site == "gate_up_proj":
        # Gates that reach both tails of silu; its near-linear middle hides other activations.
        scaled[: spec.intermediate_size] *= 2.0
    if site == "lm_head":
        scaled *= math.sqrt(shape[1])
        scaled[spec.vocab_size :] *= 8.0
    return scaled


def _embedding(noise: np.ndarray) -> np.ndarray:
    noise = noise.copy()
    noise[1::_FAINT_EVERY] *= _FAINT_SCALE
    noise[5::_LOUD_EVERY, noise.shape[1] // 3] = _LOUD_CHANNEL
    return noise
