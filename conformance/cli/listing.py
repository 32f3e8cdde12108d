"""`conformance list`: backends, releases, cases, faults."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from conformance.backends.registry import known_backends
from conformance.case import known_cases
from conformance.families import FAMILIES, family_of
from conformance.faults import faults_of

__all__ = ["listing"]


def listing(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List backends (available, or why not), releases, cases, and the faults that triage can name."""
    known = known_backends().values()
    backends = {b.name: {"title": b.title, "unavailable": b.unavailable()} for b in known}
    releases = {name: [release.name for release in family_of(name).releases] for name in FAMILIES}
    cases = known_cases()
    faults = {name: {fault.id: fault.what for fault in faults_of(name).FAULTS} for name in FAMILIES}
    if as_json:
        content = {"backends": backends, "releases": releases, "cases": cases, "faults": faults}
        print(json.dumps(content, indent=1))
        return
    width = max(map(len, backends))
    console = Console(highlight=False, soft_wrap=True)
    console.print("backends", style="bold")
    for name, backend in backends.items():
        console.print(
            f"  {name:{width}} {backend['title']}: {backend['unavailable'] or 'available'}", markup=False
        )
    console.print("releases", style="bold")
    for name, of_family in releases.items():
        console.print(f"  {name:{width}} {', '.join(of_family)}", markup=False)
    console.print("cases", style="bold")
    for name, law in cases.items():
        console.print(f"  {name:26} {law}", markup=False)
    for family, bank in faults.items():
        console.print(f"faults of {family}", style="bold")
        for name, what in bank.items():
            console.print(f"  {name:34} {what}", markup=False)
