"""`conformance list`: backends, releases, cases."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from conformance.backends.registry import known_backends
from conformance.case import known_cases
from conformance.families import FAMILIES, family_of

__all__ = ["listing"]


def listing(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List backends (available, or why not), releases and cases."""
    known = known_backends().values()
    backends = {b.name: {"title": b.title, "unavailable": b.unavailable()} for b in known}
    releases = {name: [release.name for release in family_of(name).releases] for name in FAMILIES}
    cases = known_cases()
    if as_json:
        print(json.dumps({"backends": backends, "releases": releases, "cases": cases}, indent=1))
        return
    console = Console(highlight=False)
    console.print("backends", style="bold")
    for name, backend in backends.items():
        console.print(
            f"  {name:14} {backend['title']}: {backend['unavailable'] or 'available'}", markup=False
        )
    console.print("releases", style="bold")
    for name, of_family in releases.items():
        console.print(f"  {name:14} {', '.join(of_family)}", markup=False)
    console.print("cases", style="bold")
    for name, law in cases.items():
        console.print(f"  {name:26} {law}", markup=False)
