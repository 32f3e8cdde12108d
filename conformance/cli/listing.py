"""`conformance list`: backends, releases, cases."""

from __future__ import annotations

import ast
import json
from typing import Annotated

import typer
from rich.console import Console

from conformance.backends.registry import known_backends
from conformance.case import case_directory
from conformance.families import FAMILIES, family_of

__all__ = ["listing"]


def listing(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List backends (available, or why not), releases and cases."""
    known = known_backends().values()
    backends = {b.name: {"title": b.title, "unavailable": b.unavailable()} for b in known}
    releases = {name: [release.name for release in family_of(name).releases] for name in FAMILIES}
    cases = _cases()
    if as_json:
        print(json.dumps({"backends": backends, "releases": releases, "cases": cases}, indent=1))
        return
    console = Console(highlight=False)
    console.print("backends", style="bold")
    for name, backend in backends.items():
        console.print(f"  {name:14} {backend['title']}: {backend['unavailable'] or 'available'}")
    console.print("releases", style="bold")
    for name, of_family in releases.items():
        console.print(f"  {name:14} {', '.join(of_family)}")
    console.print("cases", style="bold")
    for name, law in cases.items():
        console.print(f"  {name:26} {law}")


def _cases() -> dict[str, str]:
    """Case id → law, read from the chapters' source: listing runs no code of theirs."""
    found: dict[str, str] = {}
    for chapter in sorted(case_directory().glob("test_*.py")):
        for call in ast.walk(ast.parse(chapter.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "case":
                laws = [k.value for k in call.keywords if k.arg == "law"]
                found[ast.literal_eval(call.args[0])] = ast.literal_eval(laws[0])
    return found
