"""The error grammar: one line that says what was wrong, where, and what would be right."""

from __future__ import annotations

__all__ = ["BadInput", "Refused", "Unsupported"]


class BadInput(Exception):
    """Something the user gave cannot be used; commands print the message alone and exit with 2.

    The message follows one pattern: ``what = got, but should be want [where]``.
    """

    @classmethod
    def value(cls, what: str, got: object, want: str, where: str | None = None) -> BadInput:
        """Build the message for a wrong value of `what`."""
        place = f" [{where}]" if where else ""
        return cls(f"{what} = {got!r}, but should be {want}{place}")


class Unsupported(Exception):
    """An adapter cannot do what a feed asks for; the cell becomes ``n/a`` with this reason."""


class Refused(Exception):
    """An engine declined a cache operation with an error of its own instead of answering wrongly."""
