from __future__ import annotations

from collections import Counter

from conformance.families.stepwise.bank import cache, mask, precision, rows
from conformance.families.stepwise.bank.entry import cite, shared_table, table
from conformance.faults import CACHED, DECODE, ROUNDING, Fault

SHARED = tuple(
    fault
    for module in (mask, cache, rows, precision)
    for name in module.__all__
    for fault in getattr(module, name)
)


def test_an_entry_is_a_fault_of_its_table() -> None:
    entry = table("cache", "docs/example.md")
    fault = entry(
        "slot-lost", 7, "a kind", "A slot is lost.", CACHED, DECODE, twins=("other",), cache_short=1
    )
    assert fault == Fault(
        id="slot-lost",
        what="A slot is lost.",
        part="cache",
        kind="a kind",
        section="docs/example.md §7",
        changes={"cache_short": 1},
        where=(CACHED, DECODE),
        twins=("other",),
    )


def test_a_shared_entry_gets_its_section_when_a_family_cites_it() -> None:
    shared = shared_table("mask")("all-seen", "a kind", "All is seen.", reveals=ROUNDING, why="so", x=1)
    (cited,) = cite([shared], "docs/example.md", 3)
    assert cited == table("mask", "docs/example.md")(
        "all-seen", 3, "a kind", "All is seen.", reveals=ROUNDING, why="so", x=1
    )


def test_shared_faults_have_ids_of_their_own() -> None:
    assert len(SHARED) > 80
    assert max(Counter(fault.id for fault in SHARED).values()) == 1
