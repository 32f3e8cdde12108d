"""Checks of configuration values that every family's spec makes; each message names the key."""

from __future__ import annotations

import math

from conformance.errors import BadInput

__all__ = ["is_number", "require_positive", "require_size"]


def is_number(value: object) -> bool:
    """Is it a finite number, and no truth value?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def require_size(key: str, value: object) -> None:
    """A count: a whole number, 1 or larger.

    Raises:
        BadInput: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput.value(key, value, "a whole number, 1 or larger")


def require_positive(key: str, value: object) -> None:
    """A finite number above 0.

    Raises:
        BadInput: it is not.
    """
    if not is_number(value) or not value > 0:  # type: ignore[operator]
        raise BadInput.value(key, value, "a positive number")
