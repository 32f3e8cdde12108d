"""Figures that were published for small Gemma 4 models: none are known."""

from __future__ import annotations

from conformance.families.base import Published

__all__ = ["PUBLISHED"]

PUBLISHED: dict[str, Published] = {}
