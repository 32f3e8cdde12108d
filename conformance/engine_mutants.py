"""Engine mutants: every patch of an engine planted in turn, and judged by the cases until one catches it.

A worker runs each engine with a patch and without (`conformance.backends.patching`): a catch is a claim
that fails with the patch and holds without it, on the same trial. This module is about the cases, not
about an engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conformance.backends.registry import Backend, known_backends
from conformance.case import Case, Trial, load_cases
from conformance.cells import Cell, inapplicable
from conformance.checkpoints.store import write_checkpoint
from conformance.detection import Catch, catch_of
from conformance.errors import Unsupported
from conformance.judging import judge_plan
from conformance.patches import Patch, PatchedRuns, patched_backend
from conformance.runs import Session
from conformance.trials import deal
from conformance.workers.host import Hello

__all__ = ["Planting", "plant_patches"]


@dataclass(frozen=True)
class Planting:
    """What came of one patch.

    Attributes:
        patch: the patch.
        judged: release → ids of the cases that judged it, in order.
        catches: its catches, on each release in the order of the cases.
        reached: how often the engine did something else because of it.
        error: why it could not be planted, or nothing.
        seconds: what it cost.
    """

    patch: Patch
    judged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    catches: tuple[Catch, ...] = ()
    reached: int = 0
    error: str = ""
    seconds: float = 0.0

    @property
    def problem(self) -> str:
        """What is wrong with the harness, or nothing: it survived, or it was not planted at all."""
        if self.error:
            return f"{self.patch.name} could not be planted: {self.error}"
        if not self.reached:
            why = f"no case runs what {self.patch.where} does, or the engine does not use it"
            return f"{self.patch.name} was never reached: {why}"
        caught = {catch.release for catch in self.catches}
        missed = [release for release in self.patch.releases if release not in caught]
        if missed:
            return f"{self.patch.name} survived on {', '.join(missed)}: {self.patch.what}"
        return ""


def plant_patches(
    family: str,
    patches: Sequence[Patch],
    checkpoints: Path,
    logs: Path,
    *,
    examples: int = 1,
    every_case: bool = False,
    processes: int = 1,
) -> list[Planting]:
    """Plant each patch and judge it.

    Args:
        family: whose models and cases.
        patches: what to plant.
        checkpoints: where generated checkpoints are kept.
        logs: where the workers' logs go.
        examples: models to draw for each case and release.
        every_case: go on after the first case that catches it.
        processes: how many to spread the backends over.

    Raises:
        BadInput: a backend's environment is missing.
    """
    names = list(dict.fromkeys(patch.backend for patch in patches))
    for name in names:
        known_backends()[name].interpreter()
    job = partial(_plant, family, checkpoints, logs, examples, every_case)
    lanes = [[patch for patch in patches if patch.backend == name] for name in names]
    if processes == 1 or len(lanes) == 1:
        plantings = [planting for lane in lanes for planting in job(lane)]
    else:
        with ProcessPoolExecutor(processes) as pool:
            plantings = [planting for lane in pool.map(job, lanes) for planting in lane]
    return sorted(plantings, key=lambda planting: patches.index(planting.patch))


def _plant(
    family: str, checkpoints: Path, logs: Path, examples: int, every_case: bool, patches: Sequence[Patch]
) -> list[Planting]:
    """Patches of one backend, in one session."""
    backend = patched_backend(patches[0].backend)
    session = Session(logs)
    with TemporaryDirectory(prefix="patched-") as marks:
        try:
            session.add(backend)
            hello = session.hello(backend.name)
            bench = _Bench(PatchedRuns(session, Path(marks)), backend, hello, family, checkpoints, examples)
            return [bench.plant(patch, every_case) for patch in patches]
        finally:
            session.close()


@dataclass(frozen=True)
class _Bench:
    """One backend with a worker that can patch it."""

    plain: PatchedRuns
    backend: Backend
    hello: Hello
    family: str
    checkpoints: Path
    examples: int

    def plant(self, patch: Patch, every_case: bool) -> Planting:
        """Judge one patch by the cases that the backend can be asked to run."""
        started = time.perf_counter()
        judged: dict[str, tuple[str, ...]] = {}
        catches: list[Catch] = []
        for release in patch.releases:
            for case in self._cases(release):
                judged[release] = (*judged.get(release, ()), case.id)
                trials = deal(case, self.family, release, self.hello.limits, self.examples)
                found = [catch for trial in trials if (catch := self._judge(patch, case, trial)) is not None]
                catches += sorted(found, key=lambda catch: -catch.ratio)[:1]
                if found and not every_case:
                    break
        report = self._report(patch)
        return Planting(
            patch,
            judged,
            tuple(catches),
            reached=report.get("reached", 0),
            error=report.get("error", ""),
            seconds=time.perf_counter() - started,
        )

    def _cases(self, release: str) -> Iterator[Case]:
        for case in load_cases():
            fits = case.families is None or self.family in case.families
            if fits and inapplicable(Cell(case, self.backend, self.family, release), self.hello) is None:
                yield case

    def _judge(self, patch: Patch, case: Case, trial: Trial) -> Catch | None:
        checkpoint = write_checkpoint(self.checkpoints, trial.spec, trial.seed, trial.layout)
        plan, name = case.plan(trial), self.backend.name
        try:
            outcomes = judge_plan(replace(self.plain, patch=patch), name, checkpoint, plan)
            failing = [outcome for outcome in outcomes if not outcome.holds]
            if not failing:
                return None
            plain = judge_plan(self.plain, name, checkpoint, plan)
        except Unsupported:
            return None
        known = {outcome.label for outcome in plain if not outcome.holds}
        fresh = [outcome for outcome in failing if outcome.label not in known]
        return catch_of(patch.name, case.id, trial.release, fresh) if fresh else None

    def _report(self, patch: Patch) -> Mapping[str, Any]:
        """What the worker says of the patch: nothing if it never had it."""
        hello = self.plain.session.hello_again(self.backend.name)
        report: Mapping[str, Any] = hello.numerics["patch"] if hello is not None else {}
        return report if report.get("name") == patch.name else {}
