"""Patches of the toy: right, broken, and useless in every way that a patch can be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from conformance.backends.patching import Planted
from conformance.feeds import Feed
from tests import toys


def narrow(planted: Planted) -> None:
    """Sees one token fewer."""

    def make(prepare: Any) -> Any:
        def changed(self: toys.Toy, checkpoint: Path) -> tuple[int, int]:
            planted.hit()
            vocabulary, window = prepare(self, checkpoint)
            return vocabulary, window - 1

        return changed

    planted.replace(toys.Toy, "prepare", make)


def deadly(planted: Planted) -> None:
    """Ends the process."""

    def make(run: Any) -> Any:
        def changed(self: toys.Toy, model: Any, feed: Feed) -> np.ndarray:
            os._exit(7)

        return changed

    planted.replace(toys.Toy, "run", make)


def idle(planted: Planted) -> None:
    """Replaces what is there, but never does anything else than it."""
    planted.replace(toys.Toy, "run", lambda run: run)


def renamed(planted: Planted) -> None:
    """Replaces what the engine no longer has."""
    planted.replace(toys.Toy, "gone", lambda gone: gone)


def nothing(planted: Planted) -> None:
    """Replaces nothing."""
