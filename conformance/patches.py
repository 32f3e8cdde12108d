"""Patches: faults planted at run time in engines' own code, where the fault bank plants them in ours.

A patch is data: its name, what it changes, and the dotted path of a function that makes the change. That
function is imported in a worker alone (`conformance.backends.patching`), which is started like any other.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec

from conformance.backends.registry import Backend, known_backends
from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of

__all__ = ["Patch", "find_patch", "patched_backend", "patches_of"]

_ADAPTER = "conformance.backends.patching:PatchedAdapter"


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
    near = difflib.get_close_matches(name, [patch.name for patch in patches], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadInput(f"patch = {name!r}, but should be one of the {len(patches)} patches{hint}")


def patched_backend(patch: Patch) -> Backend:
    """The patch's backend with the patch in it: the same environment and options, under a name of its own."""
    plain = known_backends()[patch.backend]
    options = {**plain.options, "adapter": plain.adapter, "patch": patch.name, "apply": patch.apply}
    return replace(
        plain,
        name=f"{plain.name}+{patch.name}",
        title=f"{plain.title}, patched: {patch.what}",
        adapter=_ADAPTER,
        options=options,
    )
