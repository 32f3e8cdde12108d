"""Detection: every fault of a family's bank planted in turn, and judged by every case.

Runs happen in this process, through the same plans, claims and noise as any backend's; truths are
computed once and shared by all faults. This module is about the harness, not about an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from conformance.case import Case, Trial, load_cases
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import Outcome, Plan
from conformance.compare.noise import Truth, measure
from conformance.compare.verdict import Grade
from conformance.errors import Refused
from conformance.families import family_of
from conformance.faults import NOTHING, ROUNDING, Fault, faults_of
from conformance.feeds import Feed
from conformance.judging import judge_plan
from conformance.runs import Run, truth_orders
from conformance.trials import deal

__all__ = ["Catch", "catch_of", "detect", "plant", "survivors"]

T = TypeVar("T")


@dataclass(frozen=True)
class Catch:
    """One fault, caught by one case on one release.

    Attributes:
        fault: its id.
        case: the case's id.
        release: the release of the models.
        claim: label of the failing claim with the largest effect.
        ratio: that effect, error / noise; infinite where there was no number to compare.
    """

    fault: str
    case: str
    release: str
    claim: str
    ratio: float


@dataclass
class LocalRuns:
    """Runs in this process: the faulty model as the backend, the oracle for the truth."""

    oracle: Any
    faulty: Any = None
    models: dict[tuple[int, str], Any] = field(default_factory=dict)
    truths: dict[tuple[str, str, tuple[str, ...]], Future[Truth]] = field(default_factory=dict)
    runs: dict[tuple[str, str], Future[Run]] = field(default_factory=dict)

    def plant(self, faulty: Any) -> None:
        """Judge another implementation from now on."""
        self.faulty = faulty
        self.runs = {}
        self.models = {key: model for key, model in self.models.items() if key[0] == id(self.oracle)}

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        """As `Session.run`."""
        key = (checkpoint.identity, feed.key)
        if key not in self.runs:
            try:
                run = Run(self.faulty.run(self._model(self.faulty, checkpoint), feed))
            except Refused as refusal:
                run = Run(None, "refused", str(refusal))
            self.runs[key] = _done(run)
        return self.runs[key]

    def truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...] = ()) -> Future[Truth]:
        """As `Session.truth`."""
        asked = feed if faults else feed.meaning()
        key = (checkpoint.identity, asked.key, faults)
        if key not in self.truths:
            model, family = self._model(self.oracle, checkpoint), checkpoint.spec.family
            own, *_ = truth_orders(family, "float64", faults)
            exact = self.oracle.run_in_order(model, replace(asked, dtype="float64"), own)
            orders = truth_orders(family, feed.dtype, faults)
            evaluations = [self.oracle.run_in_order(model, asked, order) for order in orders]
            self.truths[key] = _done(measure(exact, evaluations, feed.dtype))
        return self.truths[key]

    def wait(self, what: str, pending: Future[T]) -> T:
        """As `Session.wait`."""
        return pending.result()

    def _model(self, adapter: Any, checkpoint: Checkpoint) -> Any:
        key = (id(adapter), checkpoint.identity)
        if key not in self.models:
            self.models[key] = adapter.prepare(checkpoint.path)
        return self.models[key]


def plant(runs: LocalRuns, faults: Sequence[str]) -> None:
    """Put an implementation with these faults where the backend would be."""
    adapters = import_module("conformance.backends.reference.faulty")
    runs.plant(adapters.FaultyAdapter({"faults": list(faults)}))


def detect(
    family: str,
    faults: Sequence[Fault],
    checkpoints: Path,
    *,
    examples: int = 1,
    processes: int = 1,
    releases: Sequence[str] = (),
) -> list[Catch]:
    """Judge every fault by every case that applies to it.

    Args:
        family: whose bank.
        faults: which of it.
        checkpoints: where generated checkpoints are kept.
        examples: models to draw for each case and release.
        processes: how many to spread the faults over.
        releases: on which releases; all if none.
    """
    job = partial(_detect, family, checkpoints=checkpoints, examples=examples, releases=tuple(releases))
    if processes == 1:
        return job([fault.id for fault in faults])
    shares = [[fault.id for fault in faults[i::processes]] for i in range(processes)]
    with ProcessPoolExecutor(processes) as pool:
        catches = [catch for share in pool.map(job, shares) for catch in share]
    order = {fault.id: place for place, fault in enumerate(faults)}
    return sorted(catches, key=lambda catch: order[catch.fault])


def survivors(faults: Iterable[Fault], catches: Iterable[Catch]) -> list[Fault]:
    """Faults that no case caught, those left out that no input can reveal."""
    caught = {catch.fault for catch in catches}
    return [f for f in faults if f.id not in caught and f.reveals not in (NOTHING, ROUNDING)]


def catch_of(fault: str, case: str, release: str, failing: Sequence[Outcome]) -> Catch:
    """The catch that some failing claims are: the one with the largest effect speaks for all.

    Args:
        fault: id of what was caught.
        case: id of the case that caught it.
        release: the release of the model.
        failing: outcomes that do not hold, at least one.
    """
    effects: Mapping[str, float] = {
        outcome.label: float("inf")
        if _numberless(outcome.verdict.grade, outcome.verdict.ratio)
        else outcome.verdict.ratio
        for outcome in failing
    }
    finite = {label: ratio for label, ratio in effects.items() if ratio != float("inf")} or effects
    label = max(finite, key=lambda name: finite[name])
    return Catch(fault, case, release, label, finite[label])


def _detect(
    family: str, fault_ids: Sequence[str], *, checkpoints: Path, examples: int, releases: tuple[str, ...]
) -> list[Catch]:
    bank = {fault.id: fault for fault in faults_of(family).FAULTS}
    adapters = import_module("conformance.backends.reference.adapter")
    runs = LocalRuns(adapters.ReferenceAdapter({}))
    trials = list(_trials(family, checkpoints, examples, releases))
    catches: list[Catch] = []
    for fault_id in fault_ids:
        plant(runs, [fault_id])
        best: dict[tuple[str, str], Catch] = {}
        for case, trial, checkpoint in trials:
            plan = _relevant(case.plan(trial), bank[fault_id], trial)
            catch = _judge(runs, case, trial, checkpoint, plan, fault_id) if plan.claims else None
            known = best.get((case.id, trial.release))
            if catch is not None and (known is None or known.ratio < catch.ratio):
                best[case.id, trial.release] = catch
        catches += best.values()
    return catches


def _trials(
    family: str, checkpoints: Path, examples: int, releases: tuple[str, ...]
) -> Iterator[tuple[Case, Trial, Checkpoint]]:
    for case in load_cases():
        # A law about a release's own code bounds its rounding errors, not another implementation's.
        if case.own_code or (case.families is not None and family not in case.families):
            continue
        for release in family_of(family).releases:
            if releases and release.name not in releases:
                continue
            for trial in deal(case, family, release.name, {}, examples):
                yield case, trial, write_checkpoint(checkpoints, trial.spec, trial.seed, trial.layout)


def _relevant(plan: Plan, fault: Fault, trial: Trial) -> Plan:
    """The claims that the fault can touch: elsewhere it is certain to change nothing."""
    kept = tuple(c for c in plan.claims if any(fault.applies(trial.spec, feed) for feed in c.feeds))
    return Plan(kept, plan.witnesses)


def _judge(
    runs: Any, case: Case, trial: Trial, checkpoint: Checkpoint, plan: Plan, fault_id: str
) -> Catch | None:
    failing = [outcome for outcome in judge_plan(runs, "faulty", checkpoint, plan) if not outcome.holds]
    return catch_of(fault_id, case.id, trial.release, failing) if failing else None


def _numberless(grade: Grade, ratio: float) -> bool:
    return grade is Grade.ERROR or ratio == 0


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
