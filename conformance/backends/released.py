"""Backends that run a release's own code where the user named it, instead of our stand-ins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from conformance.backends.registry import Backend
from conformance.checkpoints.release_code import ReleasedCode, code_in, dress, parse_sources, resolve
from conformance.checkpoints.store import Checkpoint
from conformance.families import FAMILIES, family_of

__all__ = ["code_words", "dresser", "released_code", "sources_of"]


def released_code(backend: Backend, sources: Mapping[str, str]) -> ReleasedCode | None:
    """The code that the user named for a backend, if any.

    Args:
        backend: whose code.
        sources: release → directory or `hub` (`conformance.checkpoints.release_code.parse_sources`).

    Raises:
        BadInput: it is named, but not there.
    """
    source = sources.get(backend.release_code or "")
    if source is None or backend.family is None:
        return None
    release = next(r for r in family_of(backend.family).releases if r.name == backend.release_code)
    return resolve(source, release, backend.interpreter())


def sources_of(named: Iterable[str]) -> dict[str, str]:
    """Release → where its code is, from `--release-code` and the environment, for every known release.

    Raises:
        BadInput: an option is malformed.
    """
    releases = [r.name for name in FAMILIES for r in family_of(name).releases if r.code_files]
    return parse_sources(named, os.environ, releases)


def dresser(code: ReleasedCode | None, checkpoints: Path) -> Callable[[Checkpoint], Checkpoint]:
    """What makes of a checkpoint the directory that a backend is given.

    Released code is laid beside the weights where the user named it. Without a name, a directory that a
    user brought gets our stand-in in the place of whatever code lies in it, or no code where the family has
    none; generated ones are right already.
    """
    if code is not None:
        return partial(dress, code=code, root=checkpoints)

    def plain(checkpoint: Checkpoint) -> Checkpoint:
        if checkpoint.seed is not None:
            return checkpoint
        return dress(checkpoint, _standin(checkpoint), checkpoints)

    return plain


def _standin(checkpoint: Checkpoint) -> ReleasedCode:
    family = family_of(checkpoint.spec.family)
    return code_in(family.standin, family.auto_map.get(checkpoint.spec.release, {}))


def code_words(backend: Backend, code: ReleasedCode | None) -> str:
    """Whose code ran, for reports: `its own`, `stand-in`, or the SHA-256 of released code."""
    if code is not None:
        return f"sha256:{code.sha256}"
    return "stand-in" if backend.release_code else "its own"
