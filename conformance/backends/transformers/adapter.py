"""Any causal language model that Transformers loads from a checkpoint directory, remote code or its own.

Knows no family: the model is what ``AutoModelForCausalLM`` makes of the directory, the cache is the one
that the model itself creates, and cache operations are that cache's own methods.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.errors import BadInput, Refused, Unsupported
from conformance.feeds import CAPABILITIES, Crop, Feed, Forward, Phase, Reorder, Reset, Step
from conformance.workers.adapter import Adapter

__all__ = ["TransformersAdapter"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
_LOADING_PROBLEMS = {
    "missing_keys": "is missing, but the model's code has such a parameter",
    "unexpected_keys": "is stored, but the model's code has no such parameter",
    "mismatched_keys": "is stored in another shape than the model's code has",
}


@dataclass
class _Loaded:
    """One checkpoint directory, and the models made of it so far: one per dtype."""

    directory: Path
    models: dict[str, Any] = field(default_factory=dict)


class TransformersAdapter(Adapter):
    """Runs feeds on what ``AutoModelForCausalLM.from_pretrained`` makes of a directory.

    Options:
        releases: the releases that the remote code claims.
        threads: of PyTorch; 1 by default.
        scratch: directory for Transformers' copies of remote code; a temporary one by default. What is
            put there is removed at exit.
        attention: attention implementation to ask for; by default what Transformers chooses.
        remote_code: run the remote code in the directory; without it, the library's own class is loaded.
    """

    capabilities = frozenset(CAPABILITIES) - {"ragged"}
    dtypes = ("float32", "bfloat16", "float64")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.releases = tuple(options.get("releases", ()))  # type: ignore[misc]
        self._scratch = _process_directory(options.get("scratch"))
        self._transformers = _import_transformers(self._scratch / "modules")
        self._attention: str | None = None
        torch.set_num_threads(int(options.get("threads", 1)))
        torch.set_deterministic_debug_mode("error")
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def prepare(self, checkpoint: Path) -> _Loaded:
        """Keep the directory; models are loaded when a feed first asks for their dtype."""
        return _Loaded(self._named_by_code(checkpoint))

    def run(self, model: _Loaded, feed: Feed) -> np.ndarray:
        """Run every step of the feed; the answer is float32, or float64 for float64 feeds.

        Raises:
            BadInput: stored tensors and the code's parameters do not match.
            Refused: the model's cache raised in a cache operation.
            Unsupported: the cache lacks the operation, or a training feed has more than one step.
        """
        if feed.mode != "evaluation" and len(feed.steps) > 1:
            raise Unsupported("runs training feeds whole: training has no cache")
        if feed.dtype not in model.models:
            model.models[feed.dtype] = self._load(model.directory, feed.dtype)
        network = model.models[feed.dtype]
        wide = torch.float64 if feed.dtype == "float64" else torch.float32
        with _mode(network, feed.mode):
            chunks = [logits.detach().to(wide) for logits in _forwards(network, feed)]
        return torch.cat(chunks, dim=1).numpy()

    def release(self, model: _Loaded) -> None:
        """Drop the models."""
        model.models.clear()

    def versions(self) -> dict[str, str]:
        """Of Transformers and what it computes with."""
        return {name: metadata.version(name) for name in ("transformers", "torch", "numpy", "safetensors")}

    def numerics(self) -> dict[str, Any]:
        """What is pinned; the attention implementation is known once a model is loaded."""
        return {
            "device": "cpu",
            "threads": torch.get_num_threads(),
            "matmul": torch.get_float32_matmul_precision(),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "attention": self._attention or self.options.get("attention") or "chosen when a model is loaded",
        }

    def _named_by_code(self, checkpoint: Path) -> Path:
        """A link to the directory whose last name is the hash of the remote code in it.

        Transformers imports remote code under the directory's last name. Two directories called alike
        would share modules, and the second could run the first one's code; this way modules are shared
        exactly by directories with the same code.
        """
        code = hashlib.sha256()
        for file in sorted(checkpoint.glob("*.py")):
            code.update(file.name.encode() + b"\0" + file.read_bytes())
        target = checkpoint.resolve()
        place = hashlib.sha256(str(target).encode()).hexdigest()[:16]
        link = self._scratch / place / f"code_{code.hexdigest()[:16]}"
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target, target_is_directory=True)
        return link

    def _load(self, directory: Path, dtype: str) -> Any:
        asked = {"attn_implementation": self.options["attention"]} if self.options.get("attention") else {}
        network, info = self._transformers.AutoModelForCausalLM.from_pretrained(
            str(directory),
            dtype=_DTYPES[dtype],
            trust_remote_code=bool(self.options.get("remote_code", True)),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that shapes are reported like the other two problems
            **asked,
        )
        for problem, meaning in _LOADING_PROBLEMS.items():
            if info[problem]:
                first = min(info[problem], key=str)
                name = first if isinstance(first, str) else first[0]
                raise BadInput(f"{name} {meaning} [{directory.resolve()}]")
        self._attention = network.config._attn_implementation
        return network


@cache
def _process_directory(parent: str | None) -> Path:
    """A directory of this process alone, removed at exit."""
    directory = Path(tempfile.mkdtemp(prefix="remote-code-", dir=parent))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _import_transformers(modules: Path) -> Any:
    """Transformers, kept off the network, with its copies of remote code under `modules`.

    It reads its environment once, when it is imported: so it must not have been imported before.
    """
    os.environ.update(
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_MODULES_CACHE=str(modules),
    )
    transformers = importlib.import_module("transformers")
    used = importlib.import_module("transformers.utils").HF_MODULES_CACHE
    if used != str(modules):
        raise RuntimeError(
            f"HF_MODULES_CACHE = {used!r}, but should be {str(modules)!r}: transformers was imported"
        )
    transformers.utils.logging.disable_progress_bar()
    return transformers


@contextmanager
def _mode(network: Any, mode: str) -> Iterator[None]:
    """Training or evaluation, with gradients in `training` alone; evaluation again afterwards."""
    network.train(mode != "evaluation")
    try:
        with torch.set_grad_enabled(mode == "training"):
            yield
    finally:
        network.eval()


def _forwards(network: Any, feed: Feed) -> Iterator[Tensor]:
    """Logits [B, columns, V] of each forward step."""
    cached = len(feed.steps) > 1
    phases = iter(feed.phases())
    past: Any = None
    for step in feed.steps:
        if isinstance(step, Forward):
            inputs = _inputs(feed, next(phases), network, past)
            if past is not None:
                inputs["past_key_values"] = past
            answer = network(**inputs, use_cache=cached)
            if cached:
                past = answer.past_key_values
            yield answer.logits
        elif past is not None:
            _operate(past, step)


def _inputs(feed: Feed, phase: Phase, network: Any, past: Any) -> dict[str, Any]:
    """Arguments of one forward step: only what the feed says, so that nothing else can matter."""
    new = range(phase.start, phase.start + phase.columns)
    inputs: dict[str, Any] = {"input_ids": _cut(feed.tokens, new)}
    if feed.positions is not None:
        inputs["position_ids"] = _cut(feed.positions, new)
    cells = [[*context, *((row, column) for column in new)] for row, context in enumerate(phase.context)]
    real = torch.tensor([[column in feed.real[source] for source, column in row] for row in cells])  # [B, S]
    if feed.segments is not None:
        segment = torch.tensor([[feed.segments[source][column] for source, column in row] for row in cells])
        own = type(network).__module__.startswith("transformers.")
        inputs["attention_mask"] = (
            _masks_of_library(segment, real, phase.columns, network, past)
            if own
            else _packed(segment, real, phase.columns)
        )
    elif feed.padding is not None:
        inputs["attention_mask"] = real.long()
    return inputs


def _packed(segment: Tensor, real: Tensor, new: int) -> Tensor:
    """[B, 1, T, S] boolean: causal, within one segment, no padding."""
    total = segment.shape[1]
    causal = torch.ones(total, total, dtype=torch.bool).tril()
    seen = causal & (segment[:, :, None] == segment[:, None, :]) & real[:, None, :]
    return seen[:, None, total - new :]


def _masks_of_library(segment: Tensor, real: Tensor, new: int, network: Any, past: Any) -> Any:
    """What the library's own models take for segments: masks that it builds, one for each type of layer.

    A mask of ours would be taken as it is, for layers with a window too, and as a boolean in sums.
    """
    masking = importlib.import_module("transformers.masking_utils")

    def within(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return segment[row, query] == segment[row, key]

    return masking.create_masks_for_generate(
        config=network.config,
        inputs_embeds=torch.empty(len(segment), new, 1, dtype=network.dtype),  # for its size and dtype alone
        attention_mask=None if real.all() else real.long(),
        past_key_values=past,
        and_mask_function=within,
    )


def _cut(grid: Sequence[Sequence[int]], columns: range) -> Tensor:
    return torch.tensor([row[columns.start : columns.stop] for row in grid])


def _operate(past: Any, step: Step) -> None:
    """A cache operation by the method that Transformers' caches have for it."""
    name, *arguments = _method(step)
    method = getattr(past, name, None)
    if method is None:
        raise Unsupported(f"{type(past).__name__} has no {name}")
    try:
        method(*arguments)
    except (ValueError, RuntimeError) as error:
        raise Refused(f"{type(past).__name__}.{name}: {error}") from error


def _method(step: Step) -> tuple[Any, ...]:
    match step:
        case Crop(length):
            return "crop", length
        case Reset():
            return ("reset",)
        case Reorder(rows):
            return "reorder_cache", torch.tensor(rows)
    raise AssertionError(f"not a cache operation: {step}")
