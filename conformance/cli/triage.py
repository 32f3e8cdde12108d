"""`conformance triage`: what does an engine do otherwise? Exit 0 conforms, 1 differs, 2 not judged."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from conformance.backends.registry import Backend, backend_named
from conformance.backends.released import code_words, dresser, released_code, sources_of
from conformance.bundles import write_bundle
from conformance.case import case_directory
from conformance.claims import Matches
from conformance.deviations import Refusal, read_deviations
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of
from conformance.runs import Session
from conformance.triage.diagnosis import CONFORMS, UNJUDGED, Diagnosis, diagnose, diagnose_readings
from conformance.triage.files import file_readings
from conformance.triage.predictions import Predictions, process_pool
from conformance.triage.probes import Setting
from conformance.triage.words import diagnosis_data, diagnosis_lines
from conformance.workers.host import Hello, WorkerError

__all__ = ["triage"]

# Reference processes for predictions; with the engine's worker they fill the two cores of a small machine.
_PROCESSES = 2


def triage(
    backend: Annotated[
        str | None, typer.Option(help="A backend's name, module:Class[@PYTHON], or a worker's command.")
    ] = None,
    release: Annotated[list[str] | None, typer.Option(help="Only this release; may be repeated.")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Only this family; may be repeated.")] = None,
    release_code: Annotated[list[str] | None, typer.Option(help="Run released code: R=DIR or R=hub.")] = None,
    logits: Annotated[
        list[Path] | None, typer.Option(help="Logits instead of a backend: .safetensors or .npy; repeatable.")
    ] = None,
    feed: Annotated[
        list[Path] | None, typer.Option(help="What was fed (JSON), one for each --logits.")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="The release's logits of the same feeds, to check them first.")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="The model of --logits: a directory.")] = None,
    spec: Annotated[Path | None, typer.Option(help="Or its config.json, for generated weights …")] = None,
    seed: Annotated[int, typer.Option(help="… of this seed.")] = 0,
    bundles: Annotated[Path, typer.Option(help="Where to write a bundle of the plainest difference.")] = Path(
        "build/triage"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say `conforms`, name the fewest known faults that explain every difference, or say `unknown`."""
    if bool(backend) == bool(logits):
        raise BadInput("triage needs either --backend NAME, or --logits FILE with --feed and a model")
    if backend is not None:
        results = _of_backend(backend_named(backend), release, family, release_code, bundles, quiet=as_json)
        name = backend
    else:
        setting, readings = file_readings(
            logits or [], feed or [], against or [], checkpoint, spec, seed, cache_directory() / "checkpoints"
        )
        name = ", ".join(str(path) for path in logits or [])
        with _predictions(setting.family) as predictions, _telling(as_json) as tell:
            results = [(setting.family, diagnose_readings(setting, readings, predictions, tell), None)]
    if as_json:
        data = [{**diagnosis_data(name, of, found), "bundle": bundle} for of, found, bundle in results]
        print(json.dumps(data, indent=1))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for of, found, bundle in results:
            for line in diagnosis_lines(name, of, found):
                console.print(line, markup=False)
            if bundle is not None:
                console.print(f"  bundle: conformance replay {bundle}", markup=False)
    raise typer.Exit(_exit_code([found for _, found, _ in results]))


def _exit_code(found: Sequence[Diagnosis]) -> int:
    statuses = {diagnosis.status for diagnosis in found}
    if statuses - {CONFORMS, UNJUDGED}:
        return 1
    return 2 if UNJUDGED in statuses else 0


def _of_backend(
    backend: Backend,
    releases: Sequence[str] | None,
    families: Sequence[str] | None,
    release_code: Sequence[str] | None,
    bundles: Path,
    *,
    quiet: bool,
) -> list[tuple[str, Diagnosis, str | None]]:
    """Family, diagnosis and bundle for each release that was asked for."""
    code = released_code(backend, sources_of(release_code or ()))
    checkpoints = cache_directory() / "checkpoints"
    recorded = read_deviations(case_directory() / "deviations", [backend.name])
    session = Session()
    results: list[tuple[str, Diagnosis, str | None]] = []
    try:
        session.add(backend, dresser(code, checkpoints))
        session.start([session.reference, backend.name])
        with _pools() as pool, _telling(quiet) as tell:
            tell(f"starting {backend.name}")
            hello = session.hello(backend.name)
            for family, release in _wanted(backend, hello, families, releases):
                setting = Setting(
                    family, release, hello.limits, hello.capabilities, frozenset(hello.dtypes), checkpoints
                )
                refusals = [e.error for e in recorded if isinstance(e, Refusal) and e.release == release]
                found = diagnose(session, backend.name, setting, Predictions(family, pool), tell, refusals)
                about = {"code": code_words(backend, code), "versions": dict(hello.versions)}
                bundle = _bundle(session, backend.name, found, bundles, about)
                results.append((family, found, bundle))
    except WorkerError as error:
        sys.stderr.write(f"{backend.name} could not be judged: worker {error.kind}: {error}\n")
        raise typer.Exit(2) from None
    finally:
        session.close()
    return results


def _wanted(
    backend: Backend, hello: Hello, families: Sequence[str] | None, releases: Sequence[str] | None
) -> list[tuple[str, str]]:
    """(family, release) of what the backend claims, as far as it was asked for."""
    for name in families or ():
        if name not in FAMILIES:
            raise BadInput.value("--family", name, f"one of {', '.join(FAMILIES)}")
    claimed = [
        (family, release.name)
        for family in families or FAMILIES
        for release in family_of(family).releases
        if release.name in hello.releases
    ]
    names = [release for _, release in claimed]
    for name in releases or ():
        if name not in names:
            words = f"one that {backend.name} claims: {', '.join(names) or 'none'}"
            raise BadInput.value("--release", name, words)
    return [(family, release) for family, release in claimed if not releases or release in releases]


def _bundle(
    session: Session, backend: str, found: Diagnosis, directory: Path, provenance: Mapping[str, Any]
) -> str | None:
    """A bundle of the plainest probe that differs, to attach to a report."""
    start = found.start
    if start is None:
        return None
    probe = start.probe
    claim = Matches(probe.name, probe.feed)
    runs = {probe.feed.key: session.run(backend, probe.checkpoint, probe.feed).result()}
    truths = {probe.feed.key: session.truth(probe.checkpoint, probe.feed).result()}
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", f"{backend}-{found.release}").strip("-")[:60]
    path = write_bundle(
        directory / slug,
        case="triage",
        backend=backend,
        checkpoint=probe.checkpoint,
        claim=claim,
        outcome=claim.judge(runs, truths),
        session=session,
        provenance={**provenance, "triage": found.status, "faults": list(found.named)},
    )
    return os.path.relpath(path)


@contextmanager
def _pools() -> Iterator[Any]:
    pool = process_pool(_PROCESSES)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _predictions(family: str) -> Iterator[Predictions]:
    with _pools() as pool:
        yield Predictions(family, pool)


@contextmanager
def _telling(quiet: bool) -> Iterator[Any]:
    """Progress on a terminal."""
    console = Console(stderr=True, quiet=quiet)
    with console.status("starting") as status:
        yield status.update
