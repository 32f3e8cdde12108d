"""`conformance mutants`: faults planted, cases judging them. Exit 1 if one survives."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.backends.registry import known_backends
from conformance.case import load_cases
from conformance.detection import detect, survivors
from conformance.engine_mutants import plant_patches
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.families import FAMILIES
from conformance.faults import faults_of, find
from conformance.patches import find_patch, patches_of
from conformance.report.detection import cases_page, detection_page, page_name
from conformance.report.engine_detection import engines_page
from conformance.report.naming import naming_of, with_naming

__all__ = ["mutants"]


def mutants(
    family: Annotated[str, typer.Option(help="Whose faults.")] = "plamo3",
    fault: Annotated[list[str] | None, typer.Option(help="Only this fault; may be repeated.")] = None,
    engines: Annotated[
        bool, typer.Option("--engines", help="Plant the patches of engines' own code instead of the bank.")
    ] = False,
    every_case: Annotated[
        bool, typer.Option("--every-case", help="Engines: go on after the first case that catches a patch.")
    ] = False,
    examples: Annotated[int, typer.Option(help="Models to draw for each case and release.")] = 1,
    processes: Annotated[int, typer.Option(help="Processes to spread the faults over.")] = 2,
    docs: Annotated[Path | None, typer.Option(help="Write the pages about detection here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every catch as JSON.")] = False,
) -> None:
    """Plant every fault, in the reference or in engines, and see which cases catch it."""
    if family not in FAMILIES:
        raise BadInput.value("family", family, f"one of {', '.join(FAMILIES)}")
    if every_case and not engines:
        raise BadInput(
            "--every-case = given, but should come with --engines: the bank is judged by all cases"
        )
    if engines:
        survived = _plant_in_engines(family, fault, examples, processes, docs, as_json, every_case)
    else:
        survived = _plant_in_reference(family, fault, examples, processes, docs, as_json)
    raise typer.Exit(1 if survived else 0)


def _plant_in_reference(
    family: str, fault: list[str] | None, examples: int, processes: int, docs: Path | None, as_json: bool
) -> bool:
    bank = faults_of(family).FAULTS
    chosen = [find(bank, name) for name in fault] if fault else list(bank)
    console = Console(stderr=True, highlight=False)
    checkpoints = cache_directory() / "checkpoints"
    with console.status(f"planting {len(chosen)} faults, {processes} at a time: a few seconds each"):
        catches = detect(family, chosen, checkpoints, examples=examples, processes=processes)
    left = survivors(chosen, catches)
    if as_json:
        print(json.dumps([asdict(catch) for catch in catches], indent=1))
    if docs is not None:
        cases = [case for case in load_cases() if not case.own_code]
        (docs / page_name("cases", family)).write_text(cases_page(family, load_cases(), chosen, catches))
        page = docs / page_name("detection", family)
        naming = naming_of(page.read_text()) if page.is_file() else ""
        text = detection_page(family, cases, chosen, catches)
        page.write_text(with_naming(text, naming) if naming else text)
    for survivor in left:
        console.print(f"survived: {survivor.id}: {survivor.what}", markup=False)
    caught = len({catch.fault for catch in catches})
    console.print(f"{caught} of {len(chosen)} faults caught, {len(left)} survived")
    return bool(left)


def _plant_in_engines(
    family: str,
    named: list[str] | None,
    examples: int,
    processes: int,
    docs: Path | None,
    as_json: bool,
    every_case: bool,
) -> bool:
    patches = patches_of(family)
    chosen = [find_patch(patches, name) for name in named] if named else list(patches)
    console = Console(stderr=True, highlight=False)
    with console.status(f"planting {len(chosen)} patches, a few seconds each"):
        plantings = plant_patches(
            family,
            chosen,
            cache_directory() / "checkpoints",
            Path("build") / "conformance",
            examples=examples,
            every_case=every_case,
            processes=processes,
        )
    if as_json:
        print(json.dumps([asdict(planting) for planting in plantings], indent=1))
    if docs is not None:
        titles = {name: backend.title for name, backend in known_backends().items()}
        (docs / "detection-engines.md").write_text(engines_page(plantings, titles))
    problems = [planting.problem for planting in plantings if planting.problem]
    for problem in problems:
        console.print(problem, markup=False)
    console.print(f"{len(plantings) - len(problems)} of {len(plantings)} patches caught")
    return bool(problems)
