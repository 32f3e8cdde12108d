"""`conformance deviations`: what engines are known to do otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.backends.registry import known_backends
from conformance.case import case_directory
from conformance.deviations import Prediction, read_deviations
from conformance.report.engines import engines_page, entry_data

__all__ = ["deviations"]


def deviations(
    docs: Annotated[Path | None, typer.Option(help="Write engines.md here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every entry as JSON.")] = False,
) -> None:
    """List the recorded differences of every backend, as the faults of the bank that they are."""
    known = known_backends()
    entries = read_deviations(case_directory() / "deviations", known)
    if docs is not None:
        page = engines_page(known.values(), entries)
        (docs / "engines.md").write_text(page, encoding="utf-8")
    if as_json:
        print(json.dumps([entry_data(entry) for entry in entries], indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for entry in entries:
        how = f"reference + {' + '.join(entry.ids)}" if isinstance(entry, Prediction) else "refuses"
        versions = " or ".join(f"{name} {specifier}" for name, specifier in entry.versions)
        console.print(f"{entry.backend} {entry.release}: {how} ({versions}, {entry.date})", markup=False)
        console.print(f"  {entry.what} [{entry.evidence}]", markup=False)
