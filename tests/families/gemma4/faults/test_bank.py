"""What is this family's own about its bank; tests/families/test_banks.py has the rest."""

from __future__ import annotations

from conformance.families.gemma4.faults import FAULTS

PARTS = {
    "attention",
    "batch",
    "block",
    "cache",
    "head",
    "mask",
    "mlp",
    "mode",
    "norm",
    "padding",
    "pattern",
    "positions",
    "precision",
    "rope",
    "scalar",
    "segments",
    "sharing",
    "value",
}


def test_it_covers_these_parts_of_the_model() -> None:
    assert {fault.part for fault in FAULTS} == PARTS
