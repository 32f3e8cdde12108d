"""The error grammar: one line that says what was wrong, where, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BadInput", "Refused", "Unsupported", "did_you_mean"]


class BadInput(Exception):
    """Something the user gave cannot be used; commands print the message alone and exit with 2.

    The message follows one pattern: ``what = got, but should be want [where]``.
    """

    @classmethod
    def value(cls, what: str, got: object, want: str, where: str | None = None) -> BadInput:
        """Build the message for a wrong value of `what`."""
        place = f" [{where}]" if where else ""
        return cls(f"{what} = {got!r}, but should be {want}{place}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest known name as the end of a message, or nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"; did you mean {near[0]}?" if near else ""


class Unsupported(Exception):
    """An adapter cannot do what a feed asks for; the cell becomes ``n/a`` with this reason."""


class Refused(Exception):
    """An engine declined a cache operation with an error of its own instead of answering wrongly."""
