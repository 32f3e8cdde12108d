"""`conformance naming`: faults planted, and what triage calls them. Exit 1 if one is named wrong."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.families import FAMILIES
from conformance.faults import faults_of, find
from conformance.naming import RIGHT, WRONG, name_conforming, name_planted, pairs, singles
from conformance.report.detection import page_name
from conformance.report.naming import naming_section, with_naming

__all__ = ["naming"]

_SEED = 1


def naming(
    family: Annotated[str, typer.Option(help="Whose faults.")] = "plamo3",
    fault: Annotated[
        list[str] | None, typer.Option(help="Plant only this one alone; may be repeated.")
    ] = None,
    count: Annotated[int, typer.Option("--pairs", help="Random pairs of faults to plant.")] = 200,
    conforming: Annotated[int, typer.Option(help="Models of each release without a fault.")] = 14,
    processes: Annotated[int, typer.Option(help="Processes to spread the models over.")] = 2,
    docs: Annotated[Path | None, typer.Option(help="Write the part of detection.md about it here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every naming as JSON.")] = False,
) -> None:
    """Plant every fault, and random pairs, and see what triage calls them."""
    if family not in FAMILIES:
        raise BadInput.value("family", family, f"one of {', '.join(FAMILIES)}")
    for name in fault or ():
        find(faults_of(family).FAULTS, name)
    page = None if docs is None else docs / page_name("detection", family)
    if page is not None and not page.is_file():
        raise BadInput(f"there is no such file; conformance mutants writes it [{page}]")
    checkpoints = cache_directory() / "checkpoints"
    console = Console(stderr=True, highlight=False)
    with console.status("planting faults: a few seconds each"):
        chosen = [one for one in singles(family, checkpoints) if fault is None or one[1][0] in fault]
        alone = name_planted(family, chosen, checkpoints, processes)
        together = name_planted(family, pairs(family, checkpoints, count, _SEED), checkpoints, processes)
        plain = name_conforming(family, checkpoints, conforming)
    if as_json:
        print(json.dumps([{**asdict(one), "outcome": one.outcome} for one in (*alone, *together, *plain)]))
    if page is not None:
        only = "".join(f" --fault {name}" for name in fault or ())
        counts = f"--pairs {count} --conforming {conforming}"
        command = f"conformance naming --family {family}{only} {counts} --docs docs"
        page.write_text(with_naming(page.read_text(), naming_section(alone, together, plain, command)))
    for name, namings in (("alone", alone), ("in pairs", together)):
        right = sum(one.outcome == RIGHT for one in namings)
        console.print(f"{name}: {right} of {len(namings)} named right")
    probes = sum(one.probes for one in plain)
    given = sum(bool(one.named) or one.differing > 0 for one in plain)
    console.print(f"without faults: {given} names given on {probes} probes")
    wrong = any(one.outcome == WRONG for one in (*alone, *together))
    raise typer.Exit(1 if wrong or given else 0)
