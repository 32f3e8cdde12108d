"""How a checkpoint is made and stored."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """How one checkpoint is made and laid out; of these, only the recipe changes what a model computes.

    Attributes:
        dtype: stored dtype, `float32` or `bfloat16`; both hold the same values.
        shards: number of safetensors files; more than one adds an index.
        omit_defaults: leave keys out of config.json that hold their default.
        recipe: how generated weights are drawn (`Family.weights`).
    """

    dtype: str = "float32"
    shards: int = 1
    omit_defaults: bool = False
    recipe: str = "telling"
