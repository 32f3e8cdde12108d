"""`conformance mutants`: every fault of the bank planted, every case judging it. Exit 1 if one survives."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.case import load_cases
from conformance.detection import detect, survivors
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.families import FAMILIES
from conformance.faults import faults_of, find
from conformance.report.detection import cases_page, detection_page, page_name

__all__ = ["mutants"]


def mutants(
    family: Annotated[str, typer.Option(help="Whose faults.")] = "plamo3",
    fault: Annotated[list[str] | None, typer.Option(help="Only this fault; may be repeated.")] = None,
    examples: Annotated[int, typer.Option(help="Models to draw for each case and release.")] = 1,
    processes: Annotated[int, typer.Option(help="Processes to spread the faults over.")] = 2,
    docs: Annotated[Path | None, typer.Option(help="Write cases.md and detection.md here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every catch as JSON.")] = False,
) -> None:
    """Plant every fault in the reference and see which cases catch it."""
    if family not in FAMILIES:
        raise BadInput.value("family", family, f"one of {', '.join(FAMILIES)}")
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
        (docs / page_name("detection", family)).write_text(detection_page(family, cases, chosen, catches))
    for survivor in left:
        console.print(f"survived: {survivor.id}: {survivor.what}", markup=False)
    caught = len({catch.fault for catch in catches})
    console.print(f"{caught} of {len(chosen)} faults caught, {len(left)} survived")
    raise typer.Exit(1 if left else 0)
