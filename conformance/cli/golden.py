"""`conformance golden`: record, verify, list and compare stored logits."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.backends.registry import Backend, backend_named
from conformance.backends.released import code_words, dresser, released_code, sources_of
from conformance.checkpoints.release_code import ReleasedCode
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.goldens.store import golden_directory, read_goldens, write_goldens
from conformance.goldens.trials import golden_trials
from conformance.goldens.verify import Party, Verified, compare_goldens, record, verify
from conformance.report.record import verdict_data, verdict_words
from conformance.runs import Session
from conformance.workers.host import WorkerError

__all__ = ["golden"]

golden = typer.Typer(help="Stored logits with a pedigree.", no_args_is_help=True)
Directory = Annotated[Path | None, typer.Option(help="Directory of goldens; the project's own if none.")]
Release = Annotated[list[str] | None, typer.Option(help="Only goldens of this release; may be repeated.")]
Code = Annotated[list[str] | None, typer.Option(help="Run released code: R=DIR or R=hub; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@golden.command("list")
def list_goldens(directory: Directory = None, as_json: Json = False) -> None:
    """Show every golden: who made it, and who agreed."""
    goldens = read_goldens(directory or golden_directory()).values()
    if as_json:
        content = {
            g.id: {
                "release": g.spec.release,
                "model": g.spec.describe(),
                "feed": g.feed.describe(),
                "producer": dict(g.producer),
                "agreed": [{"backend": a.backend, "grade": a.grade, "ratio": a.ratio} for a in g.agreed],
            }
            for g in goldens
        }
        print(json.dumps(content, indent=1))
        return
    table = Table()
    for heading in ("golden", "model", "producer", "agreed"):
        table.add_column(heading)
    for g in goldens:
        who = ", ".join(f"{a.backend} ({a.grade} {a.ratio:.2g})" for a in g.agreed)
        table.add_row(
            *map(Text, (g.id, g.spec.describe(), f"{g.producer['backend']}, {g.producer['code']}", who))
        )
    _console().print(table)


@golden.command("verify")
def verify_goldens(
    backend: Annotated[str, typer.Option(help="Backend to judge.")] = "reference",
    release: Release = None,
    release_code: Code = None,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Judge a backend by the stored logits. Exit 0: all that apply hold; 1: one does not; 2: none applies."""
    goldens = read_goldens(directory or golden_directory())
    chosen = [g for g in goldens.values() if not release or g.spec.release in release]
    judged = backend_named(backend)
    with _session([judged], _codes([judged], release_code)) as session:
        results = list(verify(session, judged.name, chosen, _checkpoints()))
    raise typer.Exit(_show(results, as_json))


@golden.command("diff")
def diff(
    other: Annotated[Path, typer.Argument(help="Another directory of goldens.")],
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Compare two directories of goldens, logits by noise. Exit 0: the same within rounding; 1: not."""
    ours, theirs = read_goldens(directory or golden_directory()), read_goldens(other)
    with _session() as session:
        results = list(compare_goldens(session, ours, theirs, _checkpoints()))
    different = any(result.verdict is None for result in results)
    raise typer.Exit(max(_show(results, as_json), int(different)))


@golden.command("record")
def record_goldens(
    directory: Annotated[
        Path, typer.Option(help="Where to write; goldens of other releases there are kept.")
    ],
    producer: Annotated[str, typer.Option(help="Backend whose logits to store.")] = "reference",
    agree: Annotated[list[str] | None, typer.Option(help="Backend that must agree; may be repeated.")] = None,
    release: Release = None,
    release_code: Code = None,
) -> None:
    """Record goldens; refused, with nothing written, where producers disagree beyond rounding."""
    backends = [backend_named(name) for name in dict.fromkeys([producer, *(agree or ())])]
    trials = [t for t in golden_trials() if not release or t.model.spec.release in release]
    if not trials:
        raise BadInput.value("--release", release, "a release that has goldens")
    command = " ".join(["conformance", *map(shlex.quote, sys.argv[1:])])
    console = Console(stderr=True, highlight=False)
    codes = _codes(backends, release_code)
    with _session(backends, codes) as session:
        parties = [Party(b.name, session.hello(b.name), code_words(b, codes[b.name])) for b in backends]
        say = partial(console.print, markup=False)
        made = record(session, trials, parties[0], parties[1:], _checkpoints(), command, say)
    kept = read_goldens(directory).values() if (directory / "manifest.json").is_file() else ()
    new = {g.id for g in made}
    write_goldens(directory, [*made, *(g for g in kept if g.id not in new)])
    console.print(f"{len(made)} goldens recorded in {directory}", markup=False)


@contextmanager
def _session(
    backends: Sequence[Backend] = (), codes: Mapping[str, ReleasedCode | None] | None = None
) -> Iterator[Session]:
    """A session with some backends, closed at the end; a worker that cannot start is bad input."""
    session = Session()
    try:
        for backend in backends:
            session.add(backend, dresser((codes or {}).get(backend.name), _checkpoints()))
        with Console(stderr=True).status("running"):
            yield session
    except WorkerError as error:
        raise BadInput(f"a worker {error.kind}: {error}") from None
    finally:
        session.close()


def _codes(backends: Sequence[Backend], named: list[str] | None) -> dict[str, ReleasedCode | None]:
    sources = sources_of(named or ())
    return {backend.name: released_code(backend, sources) for backend in backends}


def _checkpoints() -> Path:
    return cache_directory() / "checkpoints"


def _console() -> Console:
    console = Console(highlight=False)
    console.width = max(console.width, 120)
    return console


def _show(results: Iterable[Verified], as_json: bool) -> int:
    """Print results; the exit code that they mean."""
    shown = list(results)
    if as_json:
        content = {
            r.id: {"reason": r.reason} if r.verdict is None else verdict_data(r.verdict) for r in shown
        }
        print(json.dumps(content, indent=1))
    else:
        console = _console()
        for result in shown:
            words = f"n/a: {result.reason}" if result.verdict is None else verdict_words(result.verdict)
            console.print(f"{result.id}: {words}", markup=False)
    judged = [result.verdict for result in shown if result.verdict is not None]
    if not judged:
        return 2
    return int(any(not verdict.grade.passes for verdict in judged))
