"""A backend with one patch in its engine. Imported in a worker that lives for this patch alone.

A worker for each patch is dearer than patching and unpatching one, but nothing that an engine keeps, from
tables of RoPE to compiled kernels, can carry a patch into the next one's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from conformance.feeds import Feed
from conformance.workers.adapter import Adapter

__all__ = ["PatchedAdapter", "Planted"]


class Planted:
    """One patch in this process.

    Attributes:
        name: the patch's.
        replaced: names in the engine's code that were replaced.
        reached: how often the engine did something else than it would have done without the patch.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.replaced: list[str] = []
        self.reached = 0

    def replace(self, owner: Any, attribute: str, make: Callable[[Any], Any]) -> None:
        """Put `make(original)` in the place of a function or an object of the engine.

        Args:
            owner: the engine's module or class.
            attribute: its name there.
            make: original → replacement. The replacement calls `hit` where it does something else.

        Raises:
            RuntimeError: this version of the engine has no such name.
        """
        where = f"{owner.__name__}.{attribute}"
        if not hasattr(owner, attribute):
            raise RuntimeError(f"patch {self.name} replaces {where}, but this engine has no such name")
        static = isinstance(vars(owner).get(attribute), staticmethod)
        changed = make(getattr(owner, attribute))
        setattr(owner, attribute, staticmethod(changed) if static else changed)
        self.replaced.append(where)

    def hit(self) -> None:
        """Note that the engine now deviates."""
        self.reached += 1


class PatchedAdapter(Adapter):
    """Another adapter, whose engine is patched before it is first used.

    Options:
        adapter: `module:Class` of that adapter; it gets the remaining options.
        patch: the patch's name.
        apply: `module:function` that plants it, called with a `Planted`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        own = {"adapter", "patch", "apply"}
        plain = {key: value for key, value in options.items() if key not in own}
        self._plain: Adapter = _load(options["adapter"])(plain)
        for attribute in ("releases", "capabilities", "dtypes", "limits"):
            setattr(self, attribute, getattr(self._plain, attribute))
        self._planted = Planted(options["patch"])
        _load(options["apply"])(self._planted)
        if not self._planted.replaced:
            raise RuntimeError(f"patch {self._planted.name} replaces nothing [{options['apply']}]")

    def prepare(self, checkpoint: Path) -> Any:
        return self._plain.prepare(checkpoint)

    def run(self, model: Any, feed: Feed) -> np.ndarray:
        return self._plain.run(model, feed)

    def release(self, model: Any) -> None:
        self._plain.release(model)

    def versions(self) -> Mapping[str, str]:
        return self._plain.versions()

    def numerics(self) -> Mapping[str, Any]:
        """As without the patch, and the patch: its name, what it replaced, how often it was reached."""
        planted = self._planted
        patch = {"name": planted.name, "replaced": list(planted.replaced), "reached": planted.reached}
        return {**self._plain.numerics(), "patch": patch}


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
