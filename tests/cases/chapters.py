"""The cases of cases/, by id, for tests that go through all of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from conformance.case import Case, case_directory
from conformance.claims import Claim
from conformance.feeds import Feed

RELEASES = ("2604", "4k")


@cache
def all_cases() -> dict[str, Case]:
    """Case id → case, over every chapter."""
    return {
        found.id: found for chapter in sorted(case_directory().glob("test_*.py")) for found in _cases(chapter)
    }


def feeds_of(claims: tuple[Claim, ...]) -> Iterator[Feed]:
    """Every feed that some claims ask a backend to run."""
    for claim in claims:
        yield from claim.feeds


def _cases(chapter: Path) -> list[Case]:
    spec = importlib.util.spec_from_file_location(f"chapter_{chapter.stem}", chapter)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, Case)]
