"""Scopes for xdist: what keeps the cells of one backend in one process."""

from __future__ import annotations

import pytest

from conformance.backends.registry import known_backends
from conformance.case import case
from conformance.cells import Cell
from conformance.claims import Plan
from conformance.families import FAMILIES, family_of
from conformance.schedule import backend_of
from conformance.strategies import feeds


@pytest.mark.parametrize("name", known_backends())
def test_every_backend_of_ours_on_every_release(name: str) -> None:
    law = case("a/law", law="", draws=lambda spec: feeds(spec, min_width=1, max_width=1))
    made = law(lambda trial: Plan((), ()))
    for family in FAMILIES:
        for release in family_of(family).releases:
            label = Cell(made, known_backends()[name], family, release.name).label
            assert backend_of(f"cases/test_a.py::law[{label}]") == name


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("cases/test_a.py::law[my.engine:Adapter-2604]", "my.engine:Adapter"),
        ("cases/test_a.py::law[my.engine:Adapter-4k]", "my.engine:Adapter"),
        ("cases/test_a.py::law[./worker --threads 4-4k]", "./worker --threads 4"),
        ("tests/test_a.py::test_plain", "tests/test_a.py::test_plain"),
    ],
)
def test_other_node_ids(nodeid: str, scope: str) -> None:
    assert backend_of(nodeid) == scope
