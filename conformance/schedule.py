"""Scheduling under pytest-xdist: the cells of one backend stay in one process, so its engine starts once."""

from __future__ import annotations

from typing import Any

from conformance.families import FAMILIES, family_of

__all__ = ["backend_of", "make_scheduler"]


def backend_of(nodeid: str) -> str:
    """The backend of a cell's node id, `path::case[backend-release]`; other node ids are their own scope."""
    if not nodeid.endswith("]"):
        return nodeid
    label = nodeid.rpartition("[")[2].removesuffix("]")
    for family in FAMILIES:
        for release in family_of(family).releases:
            if label.endswith(f"-{release.name}"):
                # A release's own backend is named after it and has no suffix: plamo3-2604.
                own = any(backend.name == label for backend in family_of(family).backends)
                return label if own else label.removesuffix(f"-{release.name}")
    return label


def make_scheduler(config: Any, log: Any) -> Any:
    """xdist's scheduler by scopes, with backends for scopes."""
    from xdist.scheduler import LoadScopeScheduling

    class ByBackend(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return backend_of(nodeid)

    return ByBackend(config, log)
