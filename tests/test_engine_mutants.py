"""Patches of Transformers are caught for real; what is no catch, and what is no patch, is said so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from conformance import engine_mutants
from conformance.backends.registry import Backend
from conformance.case import load_cases
from conformance.detection import Catch
from conformance.engine_mutants import Planting, plant_patches
from conformance.patches import Patch, find_patch, patches_of
from tests.conftest import ROOT

PATCHES = patches_of("plamo3")
DOCS = Path(__file__).parents[1] / "docs"
MINE = Patch(
    name="mine", what="Does it wrongly.", backend="vllm", where="a.b", apply="c:d", releases=("2604", "4k")
)
CATCH = Catch("mine", "reference/whole", "2604", "reference", 99.0)

# Patch → a case that catches it, and the case that must be the first to do so.
PLANTED = {"reorder-keys-only": "cache/reorder", "attention-causal-at-start": "batch/left-padding"}


@pytest.fixture(scope="module")
def plantings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Planting]:
    chosen = [find_patch(PATCHES, name) for name in PLANTED]
    directory = tmp_path_factory.mktemp("planted")
    found = plant_patches("plamo3", chosen, directory / "checkpoints", directory / "logs", processes=2)
    assert [planting.patch for planting in found] == chosen
    return {planting.patch.name: planting for planting in found}


@pytest.mark.parametrize("name", PLANTED)
def test_a_patch_of_transformers_is_caught(plantings: dict[str, Planting], name: str) -> None:
    planting = plantings[name]
    assert planting.problem == ""
    assert planting.reached > 0
    (catch,) = planting.catches
    assert (catch.fault, catch.case, catch.release) == (name, PLANTED[name], planting.patch.releases[0])
    assert catch.ratio > 1000
    assert planting.judged[catch.release][-1] == catch.case, "it goes on until it is caught"


def test_what_is_wrong_in_a_sentence() -> None:
    both = (CATCH, Catch("mine", "reference/whole", "4k", "reference", 99.0))
    assert Planting(MINE, catches=both, reached=1).problem == ""
    assert Planting(MINE, catches=(CATCH,), reached=1).problem == "mine survived on 4k: Does it wrongly."
    assert Planting(MINE, reached=1).problem == "mine survived on 2604, 4k: Does it wrongly."
    never = "mine was never reached: no case runs what a.b does, or the engine does not use it"
    assert Planting(MINE, catches=both).problem == never
    broken = Planting(MINE, catches=both, reached=1, error="this engine has no a.b")
    assert broken.problem == "mine could not be planted: this engine has no a.b"


def plant_in_toy(
    name: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Planting:
    """Plant a patch of tests/toy_patches.py, judged by one case. No toy is what the reference is."""
    toy = Backend(
        name="toy",
        title="",
        adapter="conformance.backends.patching:PatchedAdapter",
        options={"paths": [str(ROOT)], "adapter": "tests.toys:Toy"},
    )
    monkeypatch.setattr(engine_mutants, "patched_backend", lambda name: toy)
    monkeypatch.setattr(engine_mutants, "known_backends", lambda: {"toy": toy})
    monkeypatch.setattr(engine_mutants, "load_cases", lambda: [c for c in load_cases() if c.id == case])
    patch = Patch(
        name=name,
        what="Wrong.",
        backend="toy",
        where="Toy",
        apply=f"tests.toy_patches:{name}",
        releases=("2604",),
    )
    (planting,) = plant_patches("plamo3", [patch], tmp_path / "checkpoints", tmp_path / "logs", **options)
    return planting


def test_what_fails_without_the_patch_too_is_no_catch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planting = plant_in_toy("narrow", "reference/whole", tmp_path, monkeypatch)
    assert (planting.judged, planting.catches) == ({"2604": ("reference/whole",)}, ())
    assert planting.problem == "narrow survived on 2604: Wrong."


def test_what_holds_without_the_patch_is_a_catch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planting = plant_in_toy("narrow", "window/local-prefill", tmp_path, monkeypatch)
    (catch,) = planting.catches
    assert (catch.case, catch.claim) == ("window/local-prefill", "T = W")
    assert planting.problem == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("idle", "idle was never reached: no case runs what Toy does, or the engine does not use it"),
        ("renamed", "renamed could not be planted: RuntimeError: this engine has no Toy.gone"),
        ("deadly", "deadly could not be planted: the patched process exited with code 7"),
    ],
)
def test_a_patch_that_does_nothing_is_an_error(
    name: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plant_in_toy(name, "window/local-prefill", tmp_path, monkeypatch).problem == problem


def test_the_page_has_every_patch_and_every_one_was_caught() -> None:
    page = (DOCS / "detection-engines.md").read_text()
    rows = re.findall(r"^\| `([^`]+)`(?: on (\S+))? \| (.*) \|$", page, flags=re.MULTILINE)
    single = {(p.name, ""): p.what for p in PATCHES if len(p.releases) == 1}
    several = {(p.name, release): p.what for p in PATCHES if len(p.releases) > 1 for release in p.releases}
    assert {(name, on): rest.split(" | ")[0] for name, on, rest in rows} == single | several
    assert "**nothing**" not in page, "nox -s mutants"
    known = {case.id for case in load_cases()}
    assert set(re.findall(r"`([^`]+)`, number", page)) <= known
