"""Measure the default matrix: wall time, how it splits, and how it grows with the number of examples.

    python benchmarks/matrix.py [--runs 3] [--examples 2 20] [-- PYTEST ARGUMENTS]

Environments must be there (conformance env sync). Prints medians over the runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

PARTS = ("engine start", "engine", "reference", "harness")


def measure(examples: int, extra: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "cases",
            "-q",
            "--examples",
            str(examples),
            "--json",
            str(report),
        ]
        subprocess.run([*command, *extra], stdout=subprocess.DEVNULL, check=False)
        return dict(json.loads(report.read_text())["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--examples", type=int, nargs="+", default=[2])
    parser.add_argument("extra", nargs="*")
    given = parser.parse_args()
    table = Table(title=f"the matrix, medians of {given.runs}", title_justify="left")
    for heading in ("examples", "total s", *(f"{part} %" for part in PARTS)):
        table.add_column(heading, justify="right")
    for examples in given.examples:
        runs = [measure(examples, given.extra) for _ in range(given.runs)]
        shares = {part: statistics.median(100 * run[part] / run["total"] for run in runs) for part in PARTS}
        total = statistics.median(run["total"] for run in runs)
        table.add_row(str(examples), f"{total:.0f}", *(f"{shares[part]:.0f}" for part in PARTS))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
