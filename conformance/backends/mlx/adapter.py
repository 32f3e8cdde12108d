"""mlx-lm's own model code behind the worker protocol, on MLX's CPU build.

Which model runs is decided by a checkpoint's `model_type` alone: mlx-lm imports its module of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from conformance.feeds import Feed
from conformance.workers.adapter import Adapter, installed_versions

__all__ = ["MlxAdapter"]


@dataclass
class Loaded:
    """A checkpoint directory, and the models made of it so far: one per dtype."""

    directory: Path
    models: dict[str, Any] = field(default_factory=dict)


class MlxAdapter(Adapter):
    """Runs feeds on `mlx_lm.utils.load_model(directory)`.

    mlx-lm takes positions from its cache and has no argument for them, no mask between packed rows, and no
    way to empty a cache but to make another: `positions`, `segments` and `reset` are left out.

    Options:
        releases: what mlx-lm claims; families say it, as their model code is in mlx-lm.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset(
        {
            "batch",
            "decode",
            "chunked",
            "ragged",
            "left-padding",
            "right-padding",
            "training",
            "crop",
            "reorder",
        }
    )
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.releases = tuple(options.get("releases", ()))  # type: ignore[misc]

    def start(self) -> None:
        """Import the engine."""
        import_module("conformance.backends.mlx.engine")

    def prepare(self, checkpoint: Path) -> Loaded:
        """Keep the directory; models are loaded when a feed first asks for their dtype."""
        return Loaded(checkpoint)

    def run(self, model: Loaded, feed: Feed) -> np.ndarray:
        """float32 logits [B, T, V]; 0 in cells that are not fed.

        Raises:
            Refused: the cache declined to be trimmed.
            Unsupported: padding or cache operations that mlx-lm does not combine.
        """
        from conformance.backends.mlx import engine

        if feed.dtype not in model.models:
            engine.set_numerics()
            model.models[feed.dtype] = engine.load(model.directory, feed.dtype)
        network = model.models[feed.dtype]
        return engine.run(network, feed) if feed.mode == "evaluation" else engine.train(network, feed)

    def release(self, model: Loaded) -> None:
        """Drop the models."""
        model.models.clear()

    def versions(self) -> Mapping[str, str]:
        """Of mlx-lm and what it computes with."""
        return installed_versions("mlx-lm", "mlx", "mlx-cpu", "numpy")

    def numerics(self) -> Mapping[str, Any]:
        """What is pinned."""
        return {"device": "cpu", "compiled": False, "kv cache": "the run's dtype"}
