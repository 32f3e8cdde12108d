"""Engine mutants: every patch of an engine planted in turn, and judged by the cases until one catches it.

The patched engine runs in a worker of its own, beside an unpatched one: a catch is a claim that fails with
the patch and holds without it, on the same trial. This module is about the cases, not about an engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from conformance.backends.registry import known_backends
from conformance.case import Case, Trial, load_cases
from conformance.cells import Cell, inapplicable
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.compare.noise import Truth
from conformance.detection import Catch, catch_of
from conformance.errors import Unsupported
from conformance.feeds import Feed
from conformance.judging import judge_plan
from conformance.patches import Patch, patched_backend
from conformance.runs import Run, Session
from conformance.trials import deal
from conformance.workers.host import WorkerError

__all__ = ["Planting", "plant_patches"]

T = TypeVar("T")


@dataclass(frozen=True)
class Planting:
    """What came of one patch.

    Attributes:
        patch: the patch.
        judged: ids of the cases that judged it, in order.
        catches: its catches, on each release in the order of the cases.
        reached: how often the engine did something else because of it.
        error: why it could not be planted, or nothing.
        seconds: what it cost.
    """

    patch: Patch
    judged: tuple[str, ...] = ()
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
            return f"{self.patch.name} was never reached: {self.patch.where} is not what the engine runs"
        caught = {catch.release for catch in self.catches}
        missed = [release for release in self.patch.releases if release not in caught]
        if missed:
            return f"{self.patch.name} survived on {', '.join(missed)}: {self.patch.what}"
        return ""


@dataclass
class _Beside:
    """Runs of the patched engine; truths, which are the same for all patches, of the unpatched session."""

    patched: Session
    plain: Session

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        """As `Session.run`."""
        return self.patched.run(name, checkpoint, feed)

    def truth(self, checkpoint: Checkpoint, feed: Feed) -> Future[Truth]:
        """As `Session.truth`."""
        return self.plain.truth(checkpoint, feed)

    def wait(self, what: str, pending: Future[T]) -> T:
        """As `Session.wait`."""
        return self.plain.wait(what, pending)


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
    for patch in patches:
        patched_backend(patch).interpreter()
    job = partial(_plant, family, checkpoints, logs, examples, every_case)
    names = dict.fromkeys(patch.backend for patch in patches)
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
    plain = Session(logs)
    try:
        return [_one(plain, family, patch, checkpoints, logs, examples, every_case) for patch in patches]
    finally:
        plain.close()


def _one(
    plain: Session,
    family: str,
    patch: Patch,
    checkpoints: Path,
    logs: Path,
    examples: int,
    every_case: bool,
) -> Planting:
    started = time.perf_counter()
    backend = patched_backend(patch)
    runs = _Beside(Session(logs), plain)
    judged: list[str] = []
    catches: list[Catch] = []
    try:
        runs.patched.add(backend)
        limits = runs.patched.hello(backend.name).limits
        for release in patch.releases:
            for case in _cases(runs, patch, family, release):
                if case.id not in judged:
                    judged.append(case.id)
                found = [
                    catch
                    for trial in deal(case, family, release, limits, examples)
                    if (catch := _judge(runs, patch, case, trial, checkpoints)) is not None
                ]
                catches += sorted(found, key=lambda catch: -catch.ratio)[:1]
                if found and not every_case:
                    break
        hello = runs.patched.hello_again(backend.name)
        reached = int(hello.numerics["patch"]["reached"]) if hello is not None else 0
    except WorkerError as error:
        return Planting(patch, tuple(judged), error=str(error), seconds=time.perf_counter() - started)
    finally:
        runs.patched.close()
    return Planting(patch, tuple(judged), tuple(catches), reached, seconds=time.perf_counter() - started)


def _cases(runs: _Beside, patch: Patch, family: str, release: str) -> Iterator[Case]:
    """The cases that the patched backend can be asked to run."""
    backend = patched_backend(patch)
    hello = runs.patched.hello(backend.name)
    for case in load_cases():
        fits = case.families is None or family in case.families
        if fits and inapplicable(Cell(case, backend, family, release), hello) is None:
            yield case


def _judge(runs: _Beside, patch: Patch, case: Case, trial: Trial, checkpoints: Path) -> Catch | None:
    checkpoint = write_checkpoint(checkpoints, trial.spec, trial.seed, trial.layout)
    plan = case.plan(trial)
    try:
        outcomes = judge_plan(runs, patched_backend(patch).name, checkpoint, plan)
        failing = [outcome for outcome in outcomes if not outcome.holds]
        if not failing:
            return None
        plain = judge_plan(runs.plain, known_backends()[patch.backend].name, checkpoint, plan)
    except Unsupported:
        return None
    known = {outcome.label for outcome in plain if not outcome.holds}
    fresh = [outcome for outcome in failing if outcome.label not in known]
    return catch_of(patch.name, case.id, trial.release, fresh) if fresh else None
