"""How the tables of fault banks are written: one call, one fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from conformance.faults import VALUES, Condition, Fault

__all__ = ["cite", "shared_table", "table"]


class _Entry(Protocol):
    def __call__(
        self,
        id: str,
        section: int,
        kind: str,
        what: str,
        *where: Condition,
        reveals: str = VALUES,
        why: str = "",
        twins: tuple[str, ...] = (),
        rounds: bool = False,
        **changes: Any,
    ) -> Fault: ...


def table(part: str, document: str) -> _Entry:
    """A function that makes faults of one part of a family's model.

    It takes the id, the section's number in the family's document, the kind of mistake, what the
    implementation does, where that shows, and the knobs that change.
    """

    def entry(
        id: str,
        section: int,
        kind: str,
        what: str,
        *where: Condition,
        reveals: str = VALUES,
        why: str = "",
        twins: tuple[str, ...] = (),
        rounds: bool = False,
        **changes: Any,
    ) -> Fault:
        return Fault(
            id=id,
            what=what,
            part=part,
            kind=kind,
            section=f"{document} §{section}",
            changes=changes,
            where=where,
            reveals=reveals,
            why=why,
            twins=twins,
            rounds=rounds,
        )

    return entry


class _SharedEntry(Protocol):
    def __call__(
        self,
        id: str,
        kind: str,
        what: str,
        *where: Condition,
        reveals: str = VALUES,
        why: str = "",
        twins: tuple[str, ...] = (),
        rounds: bool = False,
        **changes: Any,
    ) -> Fault: ...


def shared_table(part: str) -> _SharedEntry:
    """As `table`, for faults that every family has: `cite` says where a family describes what is right."""
    entry = table(part, "")

    def shared(id: str, kind: str, what: str, *where: Condition, **rest: Any) -> Fault:
        return entry(id, 0, kind, what, *where, **rest)

    return shared


def cite(faults: Iterable[Fault], document: str, section: int) -> tuple[Fault, ...]:
    """Shared faults, with the section of a family's document that describes what is right."""
    return tuple(replace(fault, section=f"{document} §{section}") for fault in faults)
