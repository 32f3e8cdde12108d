"""`conformance check`: the gate for one implementation. Exit 0 conforms, 1 does not, 2 not judged."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from conformance.backends.registry import backend_named
from conformance.case import case_directory

__all__ = ["check"]


def check(
    backend: Annotated[
        str, typer.Option(help="A backend's name, module:Class[@PYTHON], or a worker's command.")
    ],
    release: Annotated[list[str] | None, typer.Option(help="Release to judge; may be repeated.")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Family to judge; may be repeated.")] = None,
    examples: Annotated[int, typer.Option(help="Models to draw for each case.")] = 2,
    checkpoint: Annotated[Path | None, typer.Option(help="Judge on this checkpoint directory.")] = None,
    release_code: Annotated[list[str] | None, typer.Option(help="Run released code: R=DIR or R=hub.")] = None,
    case: Annotated[str | None, typer.Option(help="Only cases whose name matches (pytest -k).")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")
    ] = False,
) -> None:
    """Run every case that a backend's capabilities ask for; print the matrix and one sentence."""
    backend_named(backend)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        arguments = [
            str(case_directory()),
            "--backend",
            backend,
            "--examples",
            str(examples),
            "--json",
            str(report),
        ]
        # A configuration of its own: the user's pytest settings are about the user's tests.
        settings = Path(scratch) / "pytest.ini"
        settings.write_text("[pytest]\n")
        arguments += ["-q", "--no-header", "-p", "no:cacheprovider", "-rN"]
        arguments += ["-c", str(settings), "--rootdir", str(Path.cwd())]
        for option, values in (
            ("--release", release),
            ("--family", family),
            ("--release-code", release_code),
        ):
            for value in values or ():
                arguments += [option, value]
        if checkpoint is not None:
            arguments += ["--checkpoint", str(checkpoint)]
        if case is not None:
            arguments += ["-k", case]
        code = _run(arguments, quiet=as_json)
        content = json.loads(report.read_text()) if report.is_file() else None
    if as_json and content is not None:
        print(json.dumps(content, indent=1))
    if content is None:
        if code not in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR):
            sys.stderr.write(f"{backend} could not be judged: no case ran\n")
        raise typer.Exit(2)
    verdict, sentence = _sentence(backend, content["cells"])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or (code and not verdict):
        verdict, sentence = 2, f"{backend} could not be judged: the run broke off"
    if not as_json:
        print(sentence)
    raise typer.Exit(verdict)


def _run(arguments: list[str], *, quiet: bool) -> int:
    """Run pytest in a process of its own, which has loaded nothing yet."""
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, stdout=subprocess.DEVNULL if quiet else None, check=False).returncode


def _sentence(backend: str, cells: list[dict[str, Any]]) -> tuple[int, str]:
    """Exit code and closing sentence."""
    judged = [cell for cell in cells if cell["status"] in ("pass", "known", "fail", "error")]
    red = [cell for cell in judged if cell["status"] in ("fail", "error")]
    if not judged:
        return 2, f"{backend} could not be judged: no case applies to it"
    if len(red) == len(judged) and all(cell["status"] == "error" for cell in red):
        return 2, f"{backend} could not be judged: {red[0]['reason']}"
    known = sum(cell["status"] == "known" for cell in judged)
    but = f", with {known} known differences" if known else ""
    if not red:
        return 0, f"{backend} conforms in {len(judged)} of {len(judged)} cells{but}"
    names = ", ".join(dict.fromkeys(cell["case"] for cell in red))
    return 1, f"{backend} does not conform: {len(red)} of {len(judged)} cells differ ({names}){but}"
