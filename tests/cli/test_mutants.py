"""`conformance mutants`: faults of the bank, or patches of engines; exit 1 where one survives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.cli import mutants as module
from conformance.detection import Catch
from conformance.engine_mutants import Planting
from conformance.patches import Patch, patches_of
from tests.cli.conftest import Conformance

PATCHES = patches_of("plamo3")


def planted(*, caught: bool) -> Any:
    """In the place of `plant_patches`: nothing runs, every patch is caught, or none."""

    def plant(family: str, patches: Sequence[Patch], *_: Any, **options: Any) -> list[Planting]:
        return [
            Planting(
                patch,
                judged=dict.fromkeys(patch.releases, ("reference/whole",)),
                catches=tuple(
                    Catch(patch.name, "reference/whole", release, "reference", 99.0)
                    for release in patch.releases
                    if caught
                ),
                reached=1,
            )
            for patch in patches
        ]

    return plant


def test_patches_that_are_caught(
    conformance: Conformance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "plant_patches", planted(caught=True))
    code, out, err = conformance("mutants", "--engines", "--json", "--docs", str(tmp_path))
    assert (code, err) == (0, f"{len(PATCHES)} of {len(PATCHES)} patches caught\n")
    assert [entry["patch"]["name"] for entry in json.loads(out)] == [patch.name for patch in PATCHES]
    page = (tmp_path / "detection-engines.md").read_text()
    assert page.startswith("# Faults planted in code that we did not write\n")
    assert not (tmp_path / "detection.md").exists(), "the bank was not planted"


def test_a_patch_that_survives(conformance: Conformance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plant_patches", planted(caught=False))
    code, out, err = conformance("mutants", "--engines", "--fault", "crop-ignored")
    assert (code, out) == (1, "")
    assert err == (
        "crop-ignored survived on 2604: Cutting the cache back does nothing.\n0 of 1 patches caught\n"
    )


def test_a_patch_that_there_is_not(conformance: Conformance) -> None:
    code, _, err = conformance("mutants", "--engines", "--fault", "crop-ignord")
    wrong = f"patch = 'crop-ignord', but should be one of the {len(PATCHES)} patches"
    assert (code, err) == (2, f"conformance: {wrong}; did you mean crop-ignored?\n")


def test_an_environment_that_there_is_not(conformance: Conformance) -> None:
    code, _, err = conformance("mutants", "--engines", "--fault", "crop-ignored")
    hint = "make it with: conformance env sync plamo3-2604"
    assert (code, err) == (2, f"conformance: environment transformers-5 is missing; {hint}\n")


def test_every_case_is_about_engines(conformance: Conformance) -> None:
    code, _, err = conformance("mutants", "--every-case")
    wrong = "--every-case = given, but should come with --engines: the bank is judged by all cases"
    assert (code, err) == (2, f"conformance: {wrong}\n")
