from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from conformance.families.gemma4.faults import FAULTS
from conformance.families.gemma4.faults.knobs import RIGHT, Knobs, knobs_with
from conformance.faults import NOT_FINITE, NOTHING, ROUNDING, SHAPE, VALUES, Fault, by_kind, find

DOCUMENT = Path(__file__).parents[4] / "docs" / "gemma4.md"
HINTS = get_type_hints(Knobs)
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


def each_fault() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)


def choices(knob: str) -> tuple[Any, ...]:
    """What a knob of named values may be; empty for numbers."""
    return tuple(value for value in get_args(HINTS[knob]) if isinstance(value, str | int))


def test_ids_are_unique_and_in_kebab_case() -> None:
    repeated = [id for id, count in Counter(fault.id for fault in FAULTS).items() if count > 1]
    assert not repeated
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.id) for fault in FAULTS)


def test_the_bank_is_large_and_varied() -> None:
    assert len(FAULTS) >= 200
    assert len(by_kind(FAULTS)) >= 80


def test_descriptions_are_single_sentences_and_all_different() -> None:
    for fault in FAULTS:
        assert re.fullmatch(r"[A-Za-z][^\n]*\.", fault.what), fault.id
        assert not re.search(r"\. [A-Z]", fault.what), fault.id
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)


def test_sections_exist() -> None:
    headings = set(re.findall(r"^#+ (§\d+)", DOCUMENT.read_text(), flags=re.MULTILINE))
    for fault in FAULTS:
        name, _, section = fault.section.partition(" ")
        assert name == "docs/gemma4.md"
        assert section in headings, fault.id


def test_parts_are_known_and_kinds_belong_to_one_part() -> None:
    assert {fault.part for fault in FAULTS} == PARTS
    for kind, faults in by_kind(FAULTS).items():
        assert len({fault.part for fault in faults}) <= 2, kind


def test_faults_of_a_part_stand_together() -> None:
    assert len(list(groupby(fault.part for fault in FAULTS))) == len(PARTS)


@each_fault()
def test_changes_are_knobs_turned_to_values_that_they_have(fault: Fault) -> None:
    assert fault.changes
    assert knobs_with(fault.changes) != RIGHT
    for knob, value in fault.changes.items():
        assert value != getattr(RIGHT, knob)
        if choices(knob):
            assert value in choices(knob)


def test_no_two_faults_change_the_same() -> None:
    changes = [tuple(sorted(fault.changes.items())) for fault in FAULTS]
    assert len(set(changes)) == len(changes)


def test_every_way_to_turn_a_knob_is_a_fault() -> None:
    turned = {(knob, value) for fault in FAULTS for knob, value in fault.changes.items()}
    for field in fields(Knobs):
        assert field.name in {knob for knob, _ in turned}
        for value in choices(field.name):
            if value != getattr(RIGHT, field.name):
                assert (field.name, value) in turned


@each_fault()
def test_what_it_reveals_is_explained_unless_it_is_values(fault: Fault) -> None:
    assert fault.reveals in (VALUES, ROUNDING, NOT_FINITE, SHAPE, NOTHING)
    assert bool(fault.why) == (fault.reveals != VALUES)


@each_fault()
def test_twins_are_mutual(fault: Fault) -> None:
    for name in fault.twins:
        assert fault.id in find(FAULTS, name).twins
