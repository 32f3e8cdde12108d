"""Every family's bank of faults: well named, explained, and as large as its knobs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from conformance.families import FAMILIES
from conformance.faults import NOT_FINITE, NOTHING, ROUNDING, SHAPE, VALUES, Fault, by_kind, faults_of, find

DOCUMENTS = Path(__file__).parents[2] / "docs"
Bank = tuple[Fault, ...]
# Knobs that choose between evaluations of one function.
NO_FAULTS = {"lean"}
EACH = [
    pytest.param(family, fault, id=f"{family}-{fault.id}")
    for family in FAMILIES
    for fault in faults_of(family).FAULTS
]


def each_fault() -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("family", "fault"), EACH)


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def bank(family: str) -> Bank:
    return faults_of(family).FAULTS


def knobs_of(family: str) -> Any:
    """The module of a family's knobs."""
    return import_module(f"{FAMILIES[family]}.faults.knobs")


def choices(family: str, knob: str) -> tuple[Any, ...]:
    """What a knob of named values may be; empty for numbers."""
    hints = get_type_hints(knobs_of(family).Knobs)
    return tuple(value for value in get_args(hints[knob]) if isinstance(value, str | int))


def test_ids_are_unique_and_in_kebab_case(bank: Bank) -> None:
    repeated = [id for id, count in Counter(fault.id for fault in bank).items() if count > 1]
    assert not repeated
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.id) for fault in bank)


def test_the_bank_is_large_and_varied(bank: Bank) -> None:
    assert len(bank) >= 200
    assert len(by_kind(bank)) >= 80


def test_descriptions_are_single_sentences_and_all_different(bank: Bank) -> None:
    for fault in bank:
        assert re.fullmatch(r"[A-Za-z][^\n]*\.", fault.what), fault.id
        assert not re.search(r"\. [A-Z]", fault.what), fault.id
    assert len({fault.what for fault in bank}) == len(bank)


def test_sections_exist(family: str, bank: Bank) -> None:
    document = f"docs/{family}.md"
    text = (DOCUMENTS / f"{family}.md").read_text()
    headings = set(re.findall(r"^#+ (§\d+)", text, flags=re.MULTILINE))
    for fault in bank:
        name, _, section = fault.section.partition(" ")
        assert name == document
        assert section in headings, fault.id


def test_faults_of_a_part_stand_together_and_kinds_belong_to_one_or_two(bank: Bank) -> None:
    assert len(list(groupby(fault.part for fault in bank))) == len({fault.part for fault in bank})
    for kind, faults in by_kind(bank).items():
        assert len({fault.part for fault in faults}) <= 2, kind


@each_fault()
def test_changes_are_knobs_turned_to_values_that_they_have(family: str, fault: Fault) -> None:
    module = knobs_of(family)
    assert fault.changes
    assert module.knobs_with(fault.changes) != module.RIGHT
    for knob, value in fault.changes.items():
        assert value != getattr(module.RIGHT, knob)
        if choices(family, knob):
            assert value in choices(family, knob)


def test_no_two_faults_change_the_same(bank: Bank) -> None:
    changes = [tuple(sorted(fault.changes.items())) for fault in bank]
    assert len(set(changes)) == len(changes)


def test_every_way_to_turn_a_knob_is_a_fault(family: str, bank: Bank) -> None:
    module = knobs_of(family)
    turned = {(knob, value) for fault in bank for knob, value in fault.changes.items()}
    for field in fields(module.Knobs):
        if field.name in NO_FAULTS:
            continue
        assert field.name in {knob for knob, _ in turned}
        for value in choices(family, field.name):
            if value != getattr(module.RIGHT, field.name):
                assert (field.name, value) in turned


@each_fault()
def test_what_it_reveals_is_explained_unless_it_is_values(family: str, fault: Fault) -> None:
    assert fault.reveals in (VALUES, ROUNDING, NOT_FINITE, SHAPE, NOTHING)
    assert bool(fault.why) == (fault.reveals != VALUES)


@each_fault()
def test_twins_are_mutual(family: str, fault: Fault) -> None:
    for name in fault.twins:
        assert fault.id in find(faults_of(family).FAULTS, name).twins
