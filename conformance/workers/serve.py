"""The worker's side of the protocol (docs/protocol.md): one JSON object a line in, one out."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from safetensors.numpy import save_file

from conformance.errors import BadInput, Refused, Unsupported
from conformance.feeds import parse_feed
from conformance.workers.adapter import Adapter

__all__ = ["PROTOCOL", "serve"]

PROTOCOL = 1
# Checkpoints kept loaded; the least recently used one is released first.
KEPT_CHECKPOINTS = 4


class _Worker:
    """Loaded checkpoints of one adapter."""

    def __init__(self, adapter: Adapter, keep: int) -> None:
        self.adapter = adapter
        self.keep = keep
        self.loaded: OrderedDict[str, Any] = OrderedDict()

    def hello(self) -> dict[str, Any]:
        adapter = self.adapter
        return {
            "protocol": PROTOCOL,
            "releases": list(adapter.releases),
            "capabilities": sorted(adapter.capabilities),
            "dtypes": list(adapter.dtypes),
            "limits": {field: dict(bounds) for field, bounds in adapter.limits.items()},
            "orders": list(adapter.orders),
            "versions": dict(adapter.versions()),
            "numerics": dict(adapter.numerics()),
        }

    def run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        feed = parse_feed(params["feed"])
        missing = feed.requires - self.adapter.capabilities
        if missing:
            raise Unsupported(f"lacks {', '.join(sorted(missing))}")
        if feed.dtype not in self.adapter.dtypes:
            raise Unsupported(f"does not compute in {feed.dtype}")
        started = time.perf_counter()
        model = self.model(params["checkpoint"])
        prepared = time.perf_counter()
        orders = params.get("orders") or [""]
        tensors = {}
        for order in orders:
            logits = self.adapter.run_in_order(model, feed, order) if order else self.adapter.run(model, feed)
            if not isinstance(logits, np.ndarray):
                raise TypeError(f"run returned {type(logits).__name__}, but should return an array")
            tensors[f"logits.{order}" if order else "logits"] = np.ascontiguousarray(logits)
        finished = time.perf_counter()
        out = Path(params["logits"])
        draft = out.with_suffix(".draft")
        save_file(tensors, draft)
        os.replace(draft, out)
        return {
            "logits": str(out),
            "prepare_seconds": prepared - started,
            "run_seconds": finished - prepared,
        }

    def model(self, checkpoint: str) -> Any:
        if checkpoint in self.loaded:
            self.loaded.move_to_end(checkpoint)
        else:
            while len(self.loaded) >= self.keep:
                self.adapter.release(self.loaded.popitem(last=False)[1])
            self.loaded[checkpoint] = self.adapter.prepare(Path(checkpoint))
        return self.loaded[checkpoint]


def serve(adapter_path: str, options: Mapping[str, Any], requests: TextIO, responses: TextIO) -> None:
    """Answer requests until `bye` or the end of input.

    Args:
        adapter_path: `module:Class` of an `Adapter`.
        options: handed to the adapter; `keep` bounds the loaded checkpoints.
        requests: lines of JSON.
        responses: where lines of JSON go; nothing else may be written there.
    """
    worker: _Worker | None = None
    for line in requests:
        request = json.loads(line)
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            if worker is None:
                adapter = _load(adapter_path, options)
                adapter.start()
                worker = _Worker(adapter, options.get("keep", KEPT_CHECKPOINTS))
            match request["method"]:
                case "hello":
                    answer["result"] = worker.hello()
                case "run":
                    answer["result"] = worker.run(request["params"])
                case "bye":
                    answer["result"] = {}
                case method:
                    raise BadInput.value("method", method, "hello, run or bye")
        except Unsupported as reason:
            answer["error"] = {"kind": "unsupported", "message": str(reason)}
        except Refused as reason:
            answer["error"] = {"kind": "refused", "message": str(reason)}
        except BadInput as error:
            answer["error"] = {"kind": "failed", "message": str(error)}
        except Exception as error:  # the border: whatever an engine raises becomes an answer
            text = traceback.format_exc()
            sys.stderr.write(text)
            answer["error"] = {"kind": "failed", "message": _sentence(error), "traceback": text}
        responses.write(json.dumps(answer) + "\n")
        responses.flush()
        if request["method"] == "bye":
            return


def _sentence(error: Exception) -> str:
    """An exception's first line; where it says nothing, the place it came from."""
    message = f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]
    if str(error):
        return message
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{message} {Path(place.filename).name} line {place.lineno}: {place.line}"


def _load(adapter_path: str, options: Mapping[str, Any]) -> Adapter:
    module, _, name = adapter_path.partition(":")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        raise BadInput(f"no module {error.name!r}, which --backend {adapter_path} needs") from None
    if not hasattr(loaded, name):
        raise BadInput(f"module {module} has no class {name!r}")
    adapter = getattr(loaded, name)(options)
    if not isinstance(adapter, Adapter):
        raise BadInput(f"{adapter_path} is not a subclass of conformance.workers.adapter.Adapter")
    return adapter
