"""Planted faults are caught by the cases whose subject they are, and by no case that they cannot touch."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.case import Case, load_cases
from conformance.checkpoints.store import Checkpoint
from conformance.detection import Catch, LocalRuns, detect, survivors
from conformance.faults import NOTHING, ROUNDING, Fault, by_kind, faults_of, find
from conformance.feeds import Feed, Forward

BANK = faults_of("plamo3").FAULTS
DOCS = Path(__file__).parents[1] / "docs"
PLANTED = ("window-one-long-in-decode", "training-mask-one-late", "position-ids-ignored")


@pytest.fixture(scope="module")
def catches(tmp_path_factory: pytest.TempPathFactory) -> list[Catch]:
    chosen = [find(BANK, name) for name in PLANTED]
    return detect("plamo3", chosen, tmp_path_factory.mktemp("checkpoints"), releases=("2604",))


def caught_by(catches: list[Catch], fault: str) -> set[str]:
    return {catch.case for catch in catches if catch.fault == fault}


def test_a_window_that_is_one_long_in_decode_shows_in_decode_only(catches: list[Catch]) -> None:
    caught = caught_by(catches, "window-one-long-in-decode")
    assert {"decode/token-by-token", "window/local-decode"} <= caught
    assert not caught & {"reference/whole", "window/local-prefill", "window/global-decode", "training/mask"}


def test_the_training_mask_shows_in_training_only(catches: list[Catch]) -> None:
    assert caught_by(catches, "training-mask-one-late") == {"training/mask"}


def test_ignored_position_ids_are_found_out(catches: list[Catch]) -> None:
    caught = caught_by(catches, "position-ids-ignored")
    assert {"positions/reset", "positions/gaps"} <= caught
    assert "positions/shift" not in caught, "RoPE sees differences only"


def test_effects_are_far_above_the_bound(catches: list[Catch]) -> None:
    assert all(catch.ratio > 100 for catch in catches if not catch.case.startswith("precision/"))


def test_truths_with_faults_are_cached_and_of_the_feed_itself(checkpoint: Checkpoint) -> None:
    runs = LocalRuns(ReferenceAdapter({}))
    feed = Feed(tokens=((3, 1, 4, 1, 5, 9),), steps=(Forward(6),))
    faults = ("decode-position-one-late",)
    plain, faulty = runs.truth(checkpoint, feed), runs.truth(checkpoint, feed.token_by_token(), faults)
    assert runs.truth(checkpoint, feed.token_by_token()) is plain
    assert runs.truth(checkpoint, feed.token_by_token(), faults) is faulty
    assert np.abs(faulty.result().logits - plain.result().logits).max() > 0.01
    np.testing.assert_allclose(
        runs.truth(checkpoint, feed, faults).result().logits, plain.result().logits, rtol=0, atol=1e-12
    )


def test_a_survivor_is_a_fault_that_nothing_caught_and_something_could() -> None:
    shown, hidden = BANK[0], next(fault for fault in BANK if fault.reveals in (NOTHING, ROUNDING))
    assert survivors([shown, hidden], []) == [shown]
    assert survivors([shown], [Catch(shown.id, "a/b", "2604", "claim", 9.0)]) == []


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by first cell."""
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in section.splitlines() if line.startswith("|")]
    return {cells[0].strip("`"): cells[1:] for cells in rows[2:]}


def cases() -> list[Case]:
    return load_cases()


def kinds() -> dict[str, tuple[Fault, ...]]:
    return by_kind(fault for fault in BANK if fault.reveals not in (NOTHING, ROUNDING))


def test_the_page_of_cases_has_every_law() -> None:
    laws = table((DOCS / "cases.md").read_text(), "Laws")
    assert laws == {case.id: [case.law] for case in cases()}


def test_every_kind_of_fault_was_caught_by_a_case_that_exists() -> None:
    caught = table((DOCS / "cases.md").read_text(), "Kinds of fault, and the cases that catch them")
    assert {kind: cells[0] for kind, cells in caught.items()} == {k: str(len(f)) for k, f in kinds().items()}
    known = {case.id for case in cases()}
    for kind, (_, who) in caught.items():
        named = set(re.findall(r"`([^`]+)`", who))
        assert named <= known, kind
        assert named or re.fullmatch(r"\d+ cases", who), f"{kind} is caught by no case: nox -s mutants"


def test_every_case_but_the_published_ones_catches_something() -> None:
    counts = table((DOCS / "cases.md").read_text(), "Faults caught, by part of the model")
    assert set(counts) == {case.id for case in cases() if not case.own_code}
    for case, cells in counts.items():
        assert any(cell.isdigit() for cell in cells), f"{case} catches nothing: nox -s mutants"
