"""Run the study, or write its page again from the stored numbers."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from conformance.backends.registry import DEFAULT_BACKENDS
from conformance.calibration.document import document
from conformance.calibration.records import Records, read_records, write_records
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.families import FAMILIES

STORED = Path("docs/tolerances")


def main() -> None:
    """Read the command line; the page is written beside the directory of the numbers."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.calibration",
        description="Measure what the two constants of the grading rest on, and write docs/tolerances.md.",
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="DIR", help="stored numbers; runs nothing"
    )
    parser.add_argument("--into", type=Path, default=STORED, metavar="DIR", help=f"default {STORED}")
    parser.add_argument("--family", default=next(iter(FAMILIES)), choices=list(FAMILIES))
    parser.add_argument("--backend", action="append", metavar="NAME", help="default: those of nox")
    parser.add_argument("--models", type=int, default=20, metavar="N", help="of each release (default 20)")
    parser.add_argument("--plots", action="store_true", help="draw the plots too; needs matplotlib")
    given = parser.parse_args()
    into = given.source or given.into
    try:
        records = read_records(into) if given.source else _measured(given)
    except (BadInput, FileNotFoundError) as error:
        sys.stderr.write(f"conformance: {error}\n")
        sys.exit(2)
    if given.plots:
        from conformance.calibration.plots import draw_plots

        draw_plots(records, into)
    page = into.with_suffix(".md")
    page.write_text(document(records))
    print(f"wrote {page}")


def _measured(given: argparse.Namespace) -> Records:
    from conformance.calibration.study import Plan, study

    started = time.perf_counter()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.perf_counter() - started:5.0f} s  {line}\n")

    backends = given.backend or [name for name in DEFAULT_BACKENDS if name != "reference"]
    plan = Plan(given.family, tuple(backends), cache_directory() / "checkpoints", models=given.models)
    records = study(plan, say)
    write_records(given.into, records)
    return records


if __name__ == "__main__":
    main()
