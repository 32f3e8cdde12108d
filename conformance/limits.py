"""Limits: bounds that a backend declares on spec fields, respected when specs are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.errors import BadInput

__all__ = ["RULES", "allowed", "violation", "within"]

RULES = ("one_of", "min", "max", "multiple_of")

Bounds = Mapping[str, Mapping[str, Any]]


def within(value: float, bounds: Mapping[str, Any]) -> bool:
    """Does a value keep one field's bounds?"""
    return (
        ("one_of" not in bounds or value in bounds["one_of"])
        and ("min" not in bounds or value >= bounds["min"])
        and ("max" not in bounds or value <= bounds["max"])
        and ("multiple_of" not in bounds or value % bounds["multiple_of"] == 0)
    )


def allowed(field: str, candidates: Iterable[int], limits: Bounds) -> list[int]:
    """The candidates that keep the limits on `field`, ascending; the limit's own values if none does.

    Raises:
        BadInput: no value can be drawn within the limits.
    """
    bounds = limits.get(field, {})
    kept = sorted(value for value in candidates if within(value, bounds))
    if not kept:
        kept = sorted(value for value in bounds.get("one_of", []) if within(value, bounds))
    if not kept:
        raise BadInput.value(f"limits.{field}", dict(bounds), "met by at least one tiny model")
    return kept


def violation(values: Mapping[str, Any], limits: Bounds) -> str | None:
    """The first limit that these field values break, in words, or None."""
    for field, bounds in limits.items():
        if field in values and not within(values[field], bounds):
            rules = ", ".join(f"{rule} {bound}" for rule, bound in bounds.items())
            return f"{field} {values[field]} is outside its limit: {rules}"
    return None
