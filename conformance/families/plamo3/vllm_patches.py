"""Patches of vLLM's own PLaMo 3 (`vllm.model_executor.models.plamo3`), applied in a worker."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from conformance.backends.patching import Planted

__all__ = ["post_mixer_offset_one", "q_norm_missing"]


def _model() -> Any:
    return import_module("vllm.model_executor.models.plamo3")


def q_norm_missing(planted: Planted) -> None:
    """Queries are not normalised."""

    def make(init: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)

            def unchanged(x: Tensor) -> Tensor:
                planted.hit()
                return x

            self.q_norm.forward_native = unchanged

        return changed

    planted.replace(_model().Plamo3AttentionMixer, "__init__", make)


def post_mixer_offset_one(planted: Planted) -> None:
    """post_mixer_norm is loaded with the offset of the other norms."""

    def make(loader: Any) -> Any:
        def changed(offset: float) -> Any:
            if offset != 1 / 5:
                return loader(offset)
            planted.hit()
            return loader(1.0)

        return changed

    planted.replace(_model(), "rms_norm_weight_loader", make)
