"""Naming: what is planted is drawn fairly, and triage is asked as for any engine."""

from __future__ import annotations

from pathlib import Path

from conformance.families import family_of
from conformance.faults import NOTHING, ROUNDING, clash, faults_of, find
from conformance.naming import RIGHT, name_conforming, name_planted, pairs, singles

BANK = faults_of("plamo3").FAULTS


def test_every_fault_that_can_be_named_is_planted_once(tmp_path: Path) -> None:
    planted = singles("plamo3", tmp_path)
    nameable = {fault.id for fault in BANK if fault.reveals not in (NOTHING, ROUNDING)}
    assert sorted(faults[0] for _, faults in planted) == sorted(nameable)


def test_pairs_are_different_and_can_be_in_one_model(tmp_path: Path) -> None:
    drawn = pairs("plamo3", tmp_path, 20, seed=3)
    assert len(set(drawn)) == 20
    assert {release for release, _ in drawn} == {release.name for release in family_of("plamo3").releases}
    assert not any(clash(find(BANK, one), find(BANK, other)) for _, (one, other) in drawn)
    assert pairs("plamo3", tmp_path, 20, seed=3) == drawn
    assert pairs("plamo3", tmp_path, 20, seed=4) != drawn


def test_what_is_planted_is_named(tmp_path: Path) -> None:
    planted = [("4k", ("window-one-short",)), ("4k", ("activation-gelu", "decode-position-one-late"))]
    found = name_planted("plamo3", planted, tmp_path)
    assert [naming.planted for naming in found] == [faults for _, faults in planted]
    assert [naming.outcome for naming in found] == [RIGHT, RIGHT]
    assert all(naming.differing > 0 for naming in found)


def test_a_fault_that_makes_bf16_rounding_large_is_named(tmp_path: Path) -> None:
    """Scores that are too large leave BF16 runs of the faulty model itself far apart."""
    (found,) = name_planted("gemma4", [("gemma-4", ("gain-plus-one-heads",))], tmp_path)
    assert found.outcome == RIGHT


def test_nothing_is_named_where_nothing_is_planted(tmp_path: Path) -> None:
    found = name_conforming("plamo3", tmp_path, 1)
    assert [naming.release for naming in found] == ["2604", "4k"]
    assert all(not naming.named and not naming.differing and naming.probes > 30 for naming in found)
