"""A backend whose engine can be patched. Imported in workers.

Importing an engine is most of what a run of it costs, so one worker imports it once; each patch, and the
engine without any, then gets a process of its own, forked from the worker before it has run anything.
Nothing that an engine keeps, from tables of RoPE to compiled kernels, can carry a patch into other runs.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from conformance.errors import BadInput, Refused, Unsupported
from conformance.feeds import Feed
from conformance.workers.adapter import Adapter

__all__ = ["PATCH_FILE", "PatchedAdapter", "Planted"]

# Beside the weights of a checkpoint that is to run on a patched engine: {"name": ..., "apply": ...}.
PATCH_FILE = "patch.json"
_PASSED = {error.__name__: error for error in (BadInput, Refused, Unsupported)}


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
            raise RuntimeError(f"this engine has no {where}")
        static = isinstance(vars(owner).get(attribute), staticmethod)
        changed = make(getattr(owner, attribute))
        setattr(owner, attribute, staticmethod(changed) if static else changed)
        self.replaced.append(where)

    def hit(self) -> None:
        """Note that the engine now deviates."""
        self.reached += 1


class PatchedAdapter(Adapter):
    """Runs another adapter in forked processes: plain, and with the patch that a checkpoint names.

    A checkpoint with a `PATCH_FILE` names its patch; any other runs on the engine as it is. The process
    of one patch ends when a checkpoint comes that names another one.

    Options:
        adapter: `module:Class` of the other adapter; it gets the remaining options.
        imports: modules of the engine to import before any process is forked.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        plain = {key: value for key, value in options.items() if key not in ("adapter", "imports")}
        self._adapter: Adapter = _load(options["adapter"])(plain)
        for attribute in ("releases", "capabilities", "dtypes", "limits"):
            setattr(self, attribute, getattr(self._adapter, attribute))
        for module in options.get("imports", ()):
            import_module(module)
        self._plain: _Forked | None = None
        self._patched: _Forked | None = None

    def prepare(self, checkpoint: Path) -> Path:
        """The process that runs it loads it."""
        return checkpoint

    def run(self, model: Path, feed: Feed) -> np.ndarray:
        logits: np.ndarray = self._process(model).call("run", model, feed)
        return logits

    def release(self, model: Path) -> None:
        for process in (self._plain, self._patched):
            if process is not None:
                with suppress(RuntimeError):
                    process.call("release", model)

    def versions(self) -> Mapping[str, str]:
        return self._adapter.versions()

    def numerics(self) -> Mapping[str, Any]:
        """As without patches; and the last patch: what it replaced, how often it was reached, what failed."""
        patch: Mapping[str, Any] = {}
        if self._patched is not None:
            try:
                patch = self._patched.call("report")
            except RuntimeError as error:
                patch = {"name": self._patched.name, "reached": 0, "error": str(error)}
        return {**self._adapter.numerics(), "patch": patch}

    def _process(self, checkpoint: Path) -> _Forked:
        file = checkpoint / PATCH_FILE
        if not file.is_file():
            if self._plain is None:
                self._plain = _Forked(self._adapter, None)
            return self._plain
        patch = json.loads(file.read_text())
        if self._patched is None or self._patched.name != patch["name"]:
            if self._patched is not None:
                self._patched.end()
            self._patched = _Forked(self._adapter, patch)
        return self._patched


class _Forked:
    """A process that has the imported engine, and one patch or none."""

    def __init__(self, adapter: Adapter, patch: Mapping[str, str] | None) -> None:
        self.name = patch["name"] if patch else ""
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, adapter, patch), daemon=True)
        self._process.start()
        other.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method of `_Patched`, or its exception."""
        try:
            self._connection.send((method, arguments))
            kind, answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise RuntimeError(f"the patched process exited with code {self._process.exitcode}") from None
        if kind == "answer":
            return answer
        raise _PASSED.get(kind, RuntimeError)(answer)

    def end(self) -> None:
        """Stop at once: what it holds is of no use to anybody."""
        self._process.kill()
        self._process.join()
        self._connection.close()


class _Patched:
    """What a forked process does when asked."""

    def __init__(self, adapter: Adapter, planted: Planted) -> None:
        self.adapter = adapter
        self.planted = planted
        self.models: dict[Path, Any] = {}

    def run(self, checkpoint: Path, feed: Feed) -> np.ndarray:
        if checkpoint not in self.models:
            self.models[checkpoint] = self.adapter.prepare(checkpoint)
        return self.adapter.run(self.models[checkpoint], feed)

    def release(self, checkpoint: Path) -> None:
        if checkpoint in self.models:
            self.adapter.release(self.models.pop(checkpoint))

    def report(self) -> dict[str, Any]:
        planted = self.planted
        return {"name": planted.name, "replaced": planted.replaced, "reached": planted.reached}


def _serve(connection: Connection, adapter: Adapter, patch: Mapping[str, str] | None) -> None:
    """Plant the patch, then answer until the other end is closed; what keeps it out is the answer to all."""
    planted = Planted(patch["name"] if patch else "")
    broken: Exception | None = None
    if patch:
        try:
            _load(patch["apply"])(planted)
            if not planted.replaced:
                raise RuntimeError(f"{patch['apply']} replaces nothing")
        except Exception as error:  # whatever an import of an engine raises
            sys.stderr.write(traceback.format_exc())
            broken = error
    patched = _Patched(adapter, planted)
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        try:
            if broken is not None:
                raise broken
            connection.send(("answer", getattr(patched, method)(*arguments)))
        except Exception as error:  # as at the worker's own border: it becomes an answer
            kind = type(error).__name__
            if kind not in _PASSED:
                sys.stderr.write(traceback.format_exc())
            connection.send((kind, str(error) if kind in _PASSED else f"{kind}: {error}"))


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
