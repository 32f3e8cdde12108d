"""Patches: faults planted at run time in engines' own code, where the fault bank plants them in ours.

A patch is data: its name, what it changes, and the dotted path of a function that makes the change. That
function is imported in a worker alone (`conformance.backends.patching`), which is started like any other
and told the patch by the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from conformance.backends.patching import PATCH_FILE
from conformance.backends.registry import Backend, known_backends
from conformance.checkpoints.store import Checkpoint
from conformance.compare.noise import Truth
from conformance.errors import BadInput, did_you_mean
from conformance.families import FAMILIES, family_of
from conformance.feeds import Feed
from conformance.runs import Run, Session

__all__ = ["Patch", "PatchedRuns", "find_patch", "mark", "patched_backend", "patches_of"]

T = TypeVar("T")
_ADAPTER = "conformance.backends.patching:PatchedAdapter"
# Environment → what its adapter would import with the first run.
_TRANSFORMERS = ("transformers.cache_utils", "transformers.modeling_utils")
_ENGINES: Mapping[str | None, tuple[str, ...]] = {
    "transformers-4": _TRANSFORMERS,
    "transformers-5": _TRANSFORMERS,
    "vllm": ("conformance.backends.vllm.engine",),
}


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One fault in an engine's code.

    Attributes:
        name: stable, kebab-case.
        what: one sentence: what the engine does then.
        backend: the backend whose engine is changed.
        where: the names in the engine's code that are replaced.
        apply: `module:function`, called with a `conformance.backends.patching.Planted`.
        releases: on which releases it must be caught.
        shows: the runs in which it shows, in a few words.
        fault: the fault of the family's bank that means the same, if there is one.
    """

    name: str
    what: str
    backend: str
    where: str
    apply: str
    releases: tuple[str, ...]
    shows: str = "any run"
    fault: str | None = None


def patches_of(family: str) -> tuple[Patch, ...]:
    """The patches of a family's `patches` module; none where it has no such module.

    Raises:
        BadInput: there is no such family.
    """
    module = f"{FAMILIES[family_of(family).name]}.patches"
    if find_spec(module) is None:
        return ()
    patches: tuple[Patch, ...] = import_module(module).PATCHES
    return patches


def find_patch(patches: Sequence[Patch], name: str) -> Patch:
    """The patch called `name`.

    Raises:
        BadInput: there is none; the nearest one is offered.
    """
    for patch in patches:
        if patch.name == name:
            return patch
    hint = did_you_mean(name, (patch.name for patch in patches))
    raise BadInput(f"patch = {name!r}, but should be one of the {len(patches)} patches{hint}")


def patched_backend(name: str) -> Backend:
    """A known backend in a worker that can patch its engine; under a name of its own, and on no list."""
    plain = known_backends()[name]
    imports = _ENGINES[plain.environment]
    return replace(
        plain,
        name=f"{name}-patched",
        title=f"{plain.title}, with patches",
        adapter=_ADAPTER,
        options={**plain.options, "adapter": plain.adapter, "imports": imports},
    )


def mark(checkpoint: Checkpoint, patch: Patch, root: Path) -> Checkpoint:
    """The same checkpoint with the patch named beside its weights, for a backend of `patched_backend`.

    Args:
        checkpoint: any.
        patch: what its runs are to be patched with.
        root: a directory for links to the checkpoint's files.
    """
    path = root / patch.name / checkpoint.identity
    if not path.exists():
        path.mkdir(parents=True)
        for file in checkpoint.path.iterdir():
            (path / file.name).symlink_to(file.resolve())
        (path / PATCH_FILE).write_text(json.dumps({"name": patch.name, "apply": patch.apply}))
    return replace(checkpoint, path=path, identity=f"{checkpoint.identity}+{patch.name}")


@dataclass(frozen=True)
class PatchedRuns:
    """A `Runner` of one engine, plain or with a patch. Truths are the same for all patches.

    Attributes:
        session: the worker of the engine, and the reference's.
        marks: where checkpoints that name a patch are kept.
        patch: what runs are patched with.
    """

    session: Session
    marks: Path
    patch: Patch | None = None

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        """As `Session.run`."""
        marked = checkpoint if self.patch is None else mark(checkpoint, self.patch, self.marks)
        return self.session.run(name, marked, feed)

    def truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...] = ()) -> Future[Truth]:
        """As `Session.truth`."""
        return self.session.truth(checkpoint, feed, faults)

    def wait(self, what: str, pending: Future[T]) -> T:
        """As `Session.wait`."""
        return self.session.wait(what, pending)
