"""How the bank's tables are written: one call, one fault."""

from __future__ import annotations

from typing import Any, Protocol

from conformance.faults import VALUES, Condition, Fault

__all__ = ["table"]


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
        **changes: Any,
    ) -> Fault: ...


def table(part: str) -> _Entry:
    """A function that makes faults of one part of the model.

    It takes the id, the section's number in docs/plamo3.md, the kind of mistake, what the
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
        **changes: Any,
    ) -> Fault:
        return Fault(
            id=id,
            what=what,
            part=part,
            kind=kind,
            section=f"docs/plamo3.md §{section}",
            changes=changes,
            where=where,
            reveals=reveals,
            why=why,
            twins=twins,
        )

    return entry
