"""`conformance golden`: record, verify, list and compare stored logits."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from conformance.backends.registry import Backend, backend_named
from conformance.backends.released import code_words, dresser, released_code, sources_of
from conformance.checkpoints.release_code import ReleasedCode
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.goldens.store import (
    Golden,
    check_replaceable,
    golden_directory,
    read_goldens,
    write_goldens,
)
from conformance.goldens.trials import check_fixed_set, golden_trials
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
    goldens = _read(directory).values()
    if as_json:
        content = {
            g.id: {
                "release": g.spec.release,
                "model": g.spec.describe(),
                "seed": g.seed,
                "weights": g.weights,
                "feed": g.feed.describe(),
                "producer": dict(g.producer),
                "command": g.command,
                "agreed": [asdict(a) for a in g.agreed],
            }
            for g in goldens
        }
        print(json.dumps(content, indent=1))
        return
    table = Table()
    table.add_column("golden", no_wrap=True)
    for heading in ("model", "producer", "agreed"):
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
    goldens = _read(directory)
    _check_releases(release, {g.spec.release for g in goldens.values()})
    judged = backend_named(backend)
    codes = _codes([judged], release_code)
    with _session([judged], codes) as session:
        with _waiting(f"starting {judged.name}"):
            versions = dict(session.hello(judged.name).versions)
        code = code_words(judged, codes[judged.name])
        if not as_json:
            words = ", ".join([code, *(f"{name} {version}" for name, version in versions.items())])
            _console().print(f"{judged.name}: {words}", markup=False, soft_wrap=True)
        results = _told(
            verify(session, judged.name, _of(release, goldens).values(), _checkpoints()), "n/a: ", as_json
        )
    if as_json:
        _print_json(results, {"backend": judged.name, "code": code, "versions": versions})
    verdicts = [result.verdict for result in results if result.verdict is not None]
    raise typer.Exit(int(any(not v.grade.passes for v in verdicts)) if verdicts else 2)


@golden.command("diff")
def diff(
    other: Annotated[Path, typer.Argument(help="Another directory of goldens.")],
    release: Release = None,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Compare two directories of goldens, logits by noise. Exit 0: the same within rounding; 1: not."""
    first = directory or golden_directory()
    ours, theirs = read_goldens(first), read_goldens(other)
    _check_releases(release, {g.spec.release for g in (*ours.values(), *theirs.values())})
    ours, theirs = _of(release, ours), _of(release, theirs)
    names = (str(first), str(other))
    with _session() as session:
        results = _told(compare_goldens(session, ours, theirs, _checkpoints(), names), "", as_json)
    if as_json:
        _print_json(results, {"first": names[0], "second": names[1]})
    same = all(r.verdict is not None and r.verdict.grade.passes for r in results)
    raise typer.Exit(int(not same))


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
    check_replaceable(directory)
    before = read_goldens(directory) if (directory / "manifest.json").is_file() else {}
    backends = [backend_named(name) for name in dict.fromkeys([producer, *(agree or ())])]
    _check_releases(release, {t.model.spec.release for t in golden_trials()})
    trials = [t for t in golden_trials() if not release or t.model.spec.release in release]
    command = " ".join(["conformance", *map(shlex.quote, sys.argv[1:])])
    console = Console(stderr=True, highlight=False)
    codes = _codes(backends, release_code)
    with _session(backends, codes) as session, console.status("recording"):
        parties = [Party(b.name, session.hello(b.name), code_words(b, codes[b.name])) for b in backends]
        say = partial(console.print, markup=False, soft_wrap=True)
        made = record(session, trials, parties[0], parties[1:], _checkpoints(), command, say)
    recorded = {(g.spec.family, g.spec.release) for g in made}
    kept = [g for g in before.values() if (g.spec.family, g.spec.release) not in recorded]
    write_goldens(directory, [*made, *kept])
    for name in sorted(set(before) - {g.id for g in (*made, *kept)}):
        console.print(f"{name}: removed, for it is not in the fixed set", markup=False, soft_wrap=True)
    console.print(f"{len(made)} goldens recorded in {directory}", markup=False, soft_wrap=True)


@contextmanager
def _session(
    backends: Sequence[Backend] = (), codes: Mapping[str, ReleasedCode | None] | None = None
) -> Iterator[Session]:
    """A session with some backends, closed at the end; a worker that cannot start is bad input."""
    session = Session()
    try:
        for backend in backends:
            session.add(backend, dresser((codes or {}).get(backend.name), _checkpoints()))
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


def _waiting(words: str) -> Status:
    """Shows on a terminal that something runs, until there is something to print."""
    return Console(stderr=True).status(Text(words))


def _console() -> Console:
    console = Console(highlight=False)
    console.width = max(console.width, 120)
    return console


def _told(results: Iterable[Verified], without: str, as_json: bool) -> list[Verified]:
    """All results; each is printed as it comes, unless all are to be printed as JSON.

    Args:
        results: as they are judged.
        without: what to say before the reason for which there is no verdict.
        as_json: print nothing yet.
    """
    told: list[Verified] = []
    pending = iter(results)
    while True:
        with _waiting("running"):
            result = next(pending, None)
        if result is None:
            return told
        told.append(result)
        words = f"{without}{result.reason}"
        if result.verdict is not None:
            words = verdict_words(result.verdict) + (f" [{result.reason}]" if result.reason else "")
        if not as_json:
            _console().print(f"{result.id}: {words}", markup=False, soft_wrap=True)


def _print_json(results: Iterable[Verified], heading: Mapping[str, object]) -> None:
    goldens = {
        r.id: {**({} if r.verdict is None else verdict_data(r.verdict)), "reason": r.reason} for r in results
    }
    print(json.dumps({**heading, "goldens": goldens}, indent=1))


def _read(directory: Path | None) -> dict[str, Golden]:
    """The goldens of a directory; the project's own must be the fixed set, whole."""
    goldens = read_goldens(directory or golden_directory())
    if directory is None or directory.resolve() == golden_directory().resolve():
        check_fixed_set(goldens)
    return goldens


def _of(releases: list[str] | None, goldens: Mapping[str, Golden]) -> dict[str, Golden]:
    """Those of some releases; all of them where none is named."""
    return {name: g for name, g in goldens.items() if not releases or g.spec.release in releases}


def _check_releases(chosen: list[str] | None, known: set[str]) -> None:
    for release in chosen or ():
        if release not in known:
            raise BadInput.value("--release", release, f"one of {', '.join(sorted(known))}")
