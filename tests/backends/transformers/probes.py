"""What tests ask of the adapter inside an engine's environment (calls.py): plain data in and out."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from conformance.backends.transformers.adapter import TransformersAdapter
from conformance.feeds import parse_feed


@cache
def adapter() -> TransformersAdapter:
    """The one of this process; it must come before Transformers is imported."""
    return TransformersAdapter({"releases": ["2604", "4k"]})


@cache
def prepared(directory: str) -> Any:
    """A directory, prepared once."""
    return adapter().prepare(Path(directory))


def run(directory: str, feed: dict[str, Any]) -> list[Any]:
    """Logits of a feed."""
    return adapter().run(prepared(directory), parse_feed(feed)).tolist()  # type: ignore[no-any-return]


def described(directory: str, feed: dict[str, Any]) -> dict[str, Any]:
    """Shape and dtype of the logits, and what the adapter says of itself once it has run."""
    logits = adapter().run(prepared(directory), parse_feed(feed))
    return {
        "logits": [list(logits.shape), str(logits.dtype)],
        "versions": adapter().versions(),
        "numerics": adapter().numerics(),
    }


def surroundings(directory: str) -> dict[str, Any]:
    """Where remote code is imported from, what keeps the network away, and whether models are kept."""
    model = prepared(directory)
    network = adapter()._load(model.directory, "float32")
    return {
        "module": type(network).__module__,
        "code": model.directory.name,
        "target": str(model.directory.resolve()),
        "training": network.training,
        "offline": [os.environ[name] for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")],
        "modules": os.environ["HF_MODULES_CACHE"],
        "scratch": str(model.directory.parent.parent),
    }


def forgotten(directory: str, feed: dict[str, Any]) -> list[list[str]]:
    """dtypes of the models kept for a directory: before a run, after it, and after release."""
    model = adapter().prepare(Path(directory))
    kept = [sorted(model.models)]
    adapter().run(model, parse_feed(feed))
    kept.append(sorted(model.models))
    adapter().release(model)
    return [*kept, sorted(model.models)]
