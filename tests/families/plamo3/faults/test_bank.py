"""What is this family's own about its bank; tests/families/test_banks.py has the rest."""

from __future__ import annotations

from conformance.families.plamo3.faults import FAULTS
from conformance.faults import clash, find

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
    "segments",
}


def test_it_covers_these_parts_of_the_model() -> None:
    assert {fault.part for fault in FAULTS} == PARTS


def test_faults_of_the_same_knob_clash_and_others_do_not() -> None:
    one_long, one_short = find(FAULTS, "window-one-long"), find(FAULTS, "window-one-short-in-decode")
    assert clash(one_long, one_short) == ("decode_window",)
    assert clash(one_long, find(FAULTS, "window-one-long-in-decode")) == ()
    assert clash(one_long, find(FAULTS, "rope-missing")) == ()
