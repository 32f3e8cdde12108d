"""The bench: what the plugin's options ask for, and one test run's workers, cells and records."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.backends.registry import DEFAULT_BACKENDS, Backend, backend_named, known_backends
from conformance.backends.released import code_words, dresser, released_code, sources_of
from conformance.bundles import write_bundle
from conformance.case import Case, case_directory, known_cases
from conformance.cells import FAIL, KNOWN, NOT_APPLICABLE, PASS, Cell, CellResult, judge
from conformance.checkpoints.store import open_checkpoint
from conformance.deviations import Deviation, Prediction, Refusal, read_deviations
from conformance.environments import cache_directory
from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of
from conformance.predictions import predictions_of
from conformance.report.record import record_of
from conformance.runs import Session
from conformance.shrink import Budget, shrink
from conformance.workers.host import Bounds, Hello, WorkerError

__all__ = ["Bench", "Options", "read_options"]


@dataclass(frozen=True)
class Options:
    """What a test run was asked to do; the plugin's options, checked."""

    backends: tuple[Backend, ...]
    families: tuple[str, ...]
    releases: tuple[str, ...]
    examples: int = 2
    checkpoint: Path | None = None
    release_code: dict[str, str] = field(default_factory=dict)
    shrink: int = 40
    again: str = ""
    bounds: Bounds = Bounds()


def read_options(given: Any) -> Options:
    """Check the plugin's options.

    Raises:
        BadInput: the first one that is wrong.
    """
    families = _chosen("family", given.family, list(FAMILIES))
    of_families = [release.name for name in families for release in family_of(name).releases]
    releases = _chosen("release", given.release, of_families)
    if given.examples < 1:
        raise BadInput.value("--examples", given.examples, "1 or more")
    names = list(given.backend) or list(DEFAULT_BACKENDS)
    if "all" in names:
        names = list(known_backends())
    backends = [backend_named(name) for name in dict.fromkeys(names)]
    for backend in backends:
        backend.argv()
    return Options(
        backends=tuple(b for b in backends if b.family is None or b.family in families),
        families=tuple(families),
        releases=tuple(releases),
        examples=given.examples,
        checkpoint=Path(given.checkpoint) if given.checkpoint else None,
        release_code=sources_of(given.release_code),
        shrink=given.shrink,
        again=_again(given),
        bounds=Bounds(run_seconds=given.timeout_run, memory_bytes=int(given.memory * 2**30)),
    )


def _again(given: Any) -> str:
    """The options, beside backend and release, that a rerun needs to judge the same trials."""
    words = [f"--examples {given.examples}"] if given.examples != 2 else []
    words += ["--checkpoint " + shlex.quote(given.checkpoint)] if given.checkpoint else []
    words += [f"--release-code {shlex.quote(code)}" for code in given.release_code]
    return "".join(f" {word}" for word in words)


def _chosen(what: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in given:
        if name not in known:
            raise BadInput.value(what, name, f"one of {', '.join(known)}")
    return list(given) or list(known)


@dataclass
class _Use:
    """What became of the predictions of one backend for one release.

    Attributes:
        dealt: ids of the cases that have a cell there.
        ran: those that were judged.
        applied: predictions that could show in one of their claims.
    """

    dealt: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    applied: set[Prediction] = field(default_factory=set)


class Bench:
    """Workers and shared runs of one test run.

    Args:
        options: what to do.
        directory: where logs go.
    """

    def __init__(self, options: Options, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self._started = time.perf_counter()
        self._budgets: dict[str, Budget] = {}
        self.checkpoints = cache_directory() / "checkpoints"
        self.brought = open_checkpoint(options.checkpoint) if options.checkpoint else None
        self.code = {b.name: released_code(b, options.release_code) for b in options.backends}
        self.deviations = read_deviations(
            case_directory() / "deviations",
            [backend.name for backend in options.backends],
        )
        self._cases = set(known_cases())
        self._check_deviations()
        self._met: set[str] = set()
        self._uses: dict[tuple[str, str], _Use] = defaultdict(_Use)
        self.session = Session(directory, options.bounds)
        for backend in options.backends:
            self.session.add(backend, dresser(self.code[backend.name], self.checkpoints))
        self._hellos: dict[str, Hello | WorkerError] = {}
        self._claims = {backend.name: self._claimed(backend) for backend in options.backends}

    def cells(self, case: Case) -> Iterator[Cell]:
        """The squares of one case: every backend on every release that it claims."""
        self._met.add(case.id)
        for backend in self.options.backends:
            claimed = self._claims[backend.name]
            for family in self.options.families:
                if case.families is not None and family not in case.families:
                    continue
                for release in (r.name for r in family_of(family).releases):
                    if release not in self.options.releases or release not in claimed:
                        continue
                    if self.brought and (self.brought.spec.family, self.brought.spec.release) != (
                        family,
                        release,
                    ):
                        continue
                    self._uses[backend.name, release].dealt.add(case.id)
                    yield Cell(case, backend, family, release)

    def run(self, cell: Cell, nodeid: str) -> dict[str, Any]:
        """Judge one cell; its record for the report."""
        hello = self._hello(cell.backend)
        recorded = self._recorded(cell)
        if isinstance(hello, WorkerError):
            result = CellResult("error", f"worker {hello.kind}: {hello}")
        else:
            result = self._judge(cell, hello, recorded)
            self._require_use(cell, result, hello)
        bundle = self._bundle(cell, result, hello) if result.findings else None
        return record_of(cell, result, nodeid, bundle, self.options.again)

    def _recorded(self, cell: Cell) -> list[Deviation]:
        """The entries of the cell's backend for its release."""
        place = (cell.backend.name, cell.release)
        return [entry for entry in self.deviations if (entry.backend, entry.release) == place]

    def _require_use(self, cell: Cell, result: CellResult, hello: Hello) -> None:
        """Once every case has run, a prediction that could show in none of them is a mistake."""
        use = self._uses[cell.backend.name, cell.release]
        use.ran.add(cell.case.id)
        use.applied.update(result.applied)
        complete = self._cases <= self._met and use.dealt <= use.ran and not self.brought
        if not complete or result.status not in (PASS, KNOWN, NOT_APPLICABLE):
            return
        for entry in self._recorded(cell):
            current = isinstance(entry, Prediction) and entry.outdated(hello.versions) is None
            if current and entry not in use.applied:
                result.status = FAIL
                result.reason = (
                    f"deviation unused: {entry.source} can show in no claim of any case; remove it"
                )
                return

    def _judge(self, cell: Cell, hello: Hello, recorded: Sequence[Deviation]) -> CellResult:
        try:
            return judge(
                self.session,
                cell,
                hello,
                recorded,
                examples=self.options.examples,
                checkpoints=self.checkpoints,
                brought=self.brought,
            )
        except WorkerError as error:
            return CellResult("error", f"the reference {error.kind}: {error}")

    def _bundle(self, cell: Cell, result: CellResult, hello: Hello | WorkerError) -> str | None:
        """Make the first finding smaller and write it down; the bundle's path."""
        assert isinstance(hello, Hello)
        name = cell.backend.name
        budget = self._budgets.setdefault(name, Budget(self.options.shrink))
        predictions = predictions_of(self._recorded(cell), hello.versions)
        finding = shrink(self.session, cell, result.findings[0], hello, self.checkpoints, budget, predictions)
        result.findings[0] = finding
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", f"{cell.case.id}-{cell.label}")
        try:
            path = write_bundle(
                self.directory / "bundles" / slug,
                case=cell.case.id,
                backend=name,
                checkpoint=finding.checkpoint,
                claim=finding.claim,
                outcome=finding.outcome,
                session=self.session,
                provenance=self.provenance()[name],
            )
        except WorkerError:  # the reference has gone: the finding stands without a bundle
            return None
        return os.path.relpath(path)

    def start(self) -> None:
        """Start every worker, side by side."""
        self.session.start([self.session.reference, *(backend.name for backend in self.options.backends)])

    def provenance(self) -> dict[str, Any]:
        """What ran: for each backend its versions, numerics, and code; where its time went."""
        for name in self._hellos:
            self._hellos[name] = self.session.hello_again(name) or self._hellos[name]
        spent, starts = self.session.spending(), self.session.starts()
        return {
            backend.name: {
                "title": backend.title,
                "code": code_words(backend, self.code[backend.name]),
                **_described(self._hellos.get(backend.name)),
                "starts": starts[backend.name],
                "seconds": asdict(spent[backend.name]),
            }
            for backend in self.options.backends
            if backend.name in self._hellos
        }

    def seconds(self) -> dict[str, float]:
        """Wall time of this process: waiting for engines and the reference, and the harness's own."""
        total = time.perf_counter() - self._started
        waits = self.session.waits
        return {"total": total, **waits, "harness": total - sum(waits.values())}

    def close(self) -> None:
        """Stop the workers."""
        self.session.close()

    def _check_deviations(self) -> None:
        """A pattern that can match nothing is a mistake in the file, whatever is selected now."""
        for entry in self.deviations:
            for pattern in entry.case if isinstance(entry, Refusal) else ():
                if not any(fnmatchcase(case, pattern) for case in self._cases):
                    raise BadInput.value("case", pattern, "a pattern that matches a case", entry.source)

    def _claimed(self, backend: Backend) -> tuple[str, ...]:
        if backend.releases:
            return backend.releases
        hello = self._hello(backend)
        if isinstance(hello, WorkerError):
            self.close()
            raise BadInput(f"backend {backend.name} could not be started: {hello}")
        return hello.releases

    def _hello(self, backend: Backend) -> Hello | WorkerError:
        if backend.name not in self._hellos:
            try:
                self._hellos[backend.name] = self.session.hello(backend.name)
            except WorkerError as error:
                self._hellos[backend.name] = error
        return self._hellos[backend.name]


def _described(hello: Hello | WorkerError | None) -> dict[str, Any]:
    if not isinstance(hello, Hello):
        return {"problem": str(hello)}
    return {
        "releases": list(hello.releases),
        "capabilities": sorted(hello.capabilities),
        "dtypes": list(hello.dtypes),
        "limits": dict(hello.limits),
        "versions": dict(hello.versions),
        "numerics": dict(hello.numerics),
    }
