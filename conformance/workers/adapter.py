"""What a backend implements: prepare a checkpoint, run a feed. Imported inside workers only.

An adapter is a small class. Its attributes say what it can do; the harness draws models and feeds
accordingly and reports everything else as ``n/a`` with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from conformance.errors import Unsupported
from conformance.feeds import Feed

__all__ = ["Adapter", "Limits", "installed_versions"]

# spec field (or "length" of a feed) → {"one_of": [...]}, {"min": n}, {"max": n}, {"multiple_of": n}
Limits = Mapping[str, Mapping[str, Any]]


def installed_versions(*names: str) -> dict[str, str]:
    """Versions of those distributions that are installed here; an engine may come under several names."""
    found: dict[str, str] = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class Adapter(ABC):
    """One implementation behind the worker protocol.

    Attributes:
        releases: the releases that the implementation claims, by name.
        capabilities: a subset of `conformance.feeds.CAPABILITIES`.
        dtypes: a subset of `conformance.feeds.DTYPES`.
        limits: bounds on spec fields, and on `length`, the tokens of a row.
        orders: correct evaluation orders that `run_in_order` can be asked for; the reference has some.
    """

    releases: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[frozenset[str]] = frozenset()
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    limits: ClassVar[Limits] = {}
    orders: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def start(self) -> None:  # noqa: B027 (most adapters have imported all that they need)
        """Import the engine; called once, before anything is asked.

        What is read from a cold disk here counts as the worker's start; what the first run reads counts as
        that run, which has less time.
        """

    @abstractmethod
    def prepare(self, checkpoint: Path) -> Any:
        """Load a checkpoint directory; the result is kept and handed to `run`, then to `release`."""

    @abstractmethod
    def run(self, model: Any, feed: Feed) -> np.ndarray:
        """Run one feed.

        Args:
            model: what `prepare` returned.
            feed: a feed that needs no capability beyond `capabilities`.

        Returns:
            float32 (float64 for float64 feeds) logits [B, T, V] before any softmax. Cells of padding
            columns are not compared, but must be finite.

        Raises:
            Unsupported: this feed cannot be run; the cell becomes ``n/a``.
            Refused: the engine itself declined a cache operation.
        """

    def run_in_order(self, model: Any, feed: Feed, order: str) -> np.ndarray:
        """As `run`, with another correct evaluation order, named in `orders`."""
        raise Unsupported(f"has no evaluation order called {order}")

    def release(self, model: Any) -> None:  # noqa: B027 (most adapters have nothing to free)
        """Free what `prepare` returned; called before a checkpoint is dropped."""

    def versions(self) -> Mapping[str, str]:
        """Versions of the engine and of what it computes with, for provenance."""
        return {}

    def numerics(self) -> Mapping[str, Any]:
        """Pinned numerics: threads, matmul precision, attention implementation."""
        return {}
