"""llama.cpp behind the worker protocol: a GGUF file of the checkpoint, fed batch by batch.

Which model runs is decided by the architecture that the family's GGUF form names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from conformance.backends.llama_cpp.steps import plan
from conformance.checkpoints.store import read_spec
from conformance.errors import Unsupported
from conformance.families.base import LOCAL
from conformance.feeds import Feed
from conformance.workers.adapter import Adapter

if TYPE_CHECKING:
    from conformance.backends.llama_cpp.engine import Model

__all__ = ["LlamaCppAdapter"]


@dataclass
class Loaded:
    """A checkpoint directory, and the models loaded from its GGUF files so far: one per dtype."""

    directory: Path
    models: dict[str, Model] = field(default_factory=dict)


class LlamaCppAdapter(Adapter):
    """Runs feeds through `llama_decode`, a logit for every token, the cache in the run's dtype.

    There is no padding and no training mode: `left-padding`, `right-padding` and `training` are left out.
    `positions` must go up one by one within a sequence; llama.cpp declines other batches itself.

    Options:
        releases: what llama.cpp claims; families say it, as their graphs are in llama.cpp.
        swa_full: give local layers a cache as large as the global ones' (default false: a window's).
        threads: of a computation (default 1).
    """

    capabilities: ClassVar[frozenset[str]] = frozenset(
        {"batch", "decode", "chunked", "ragged", "positions", "segments", "crop", "reset", "reorder"}
    )
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")
    # Whose keys and values a layer shares is told from its place, not its kind; where that does not fit,
    # llama.cpp aborts: "GGML_ASSERT(map_layer_ids.find(il_reuse) != map_layer_ids.end()) failed".
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"num_kv_shared_layers": {"max": 0}}

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.releases = tuple(options.get("releases", ()))  # type: ignore[misc]
        self._swa_full = bool(options.get("swa_full", False))
        self._threads = int(options.get("threads", 1))
        # Its last words are then the assertion that failed, not a debugger's.
        os.environ["GGML_NO_BACKTRACE"] = "1"

    def start(self) -> None:
        """Import the engine."""
        import_module("conformance.backends.llama_cpp.engine")

    def prepare(self, checkpoint: Path) -> Loaded:
        """Keep the directory; GGUF files are written when a feed first asks for their dtype.

        Raises:
            Unsupported: no layer is local: llama.cpp would abort, and take this process with it.
        """
        if LOCAL not in read_spec(checkpoint).layer_kinds:
            raise Unsupported(
                "llama.cpp aborts on a model with a window but no local layer: "
                "GGML_ASSERT(hparams.is_swa_any()) failed"
            )
        return Loaded(checkpoint)

    def run(self, model: Loaded, feed: Feed) -> np.ndarray:
        """float32 logits [B, T, V]; 0 in cells that are not fed.

        Raises:
            Refused: llama.cpp declines to cut a sequence.
            Unsupported: it calls a batch invalid, or the family has no GGUF form.
        """
        if feed.dtype not in model.models:
            model.models[feed.dtype] = self._load(model.directory, feed.dtype)
        return model.models[feed.dtype].run(plan(feed), (feed.batch, feed.width))

    def release(self, model: Loaded) -> None:
        """Free the models."""
        while model.models:
            model.models.popitem()[1].close()

    def versions(self) -> Mapping[str, str]:
        """Of the bindings, which carry llama.cpp's source, and of what writes the files."""
        return {name: version(name) for name in ("llama-cpp-python", "gguf", "numpy")}

    def numerics(self) -> Mapping[str, Any]:
        """What is pinned."""
        return {
            "device": "cpu",
            "threads": self._threads,
            "flash attention": False,
            "kv cache": "the run's dtype",
            "swa_full": self._swa_full,
            "bfloat16": "matrices and their inputs in BF16, everything else in float32",
        }

    def _load(self, directory: Path, dtype: str) -> Model:
        from conformance.backends.llama_cpp.engine import Model
        from conformance.backends.llama_cpp.files import write_gguf

        with tempfile.TemporaryDirectory(prefix="conformance-gguf-") as scratch:
            file = Path(scratch) / "model.gguf"
            write_gguf(directory, file, dtype)
            return Model(file, dtype, swa_full=self._swa_full, threads=self._threads)
