"""The study itself: engines in their workers, the reference and its faults in processes beside them."""

from __future__ import annotations

import multiprocessing
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.backends.registry import backend_named
from conformance.calibration.bank import effects, showing
from conformance.calibration.evaluations import Findings, evaluate, sample
from conformance.calibration.ratios import ratios_of
from conformance.calibration.records import (
    ALL_ORDERS,
    CONFORMING,
    Effect,
    Group,
    Level,
    Records,
    Sample,
    gather,
)
from conformance.calibration.subjects import (
    DTYPES,
    LONG,
    SAME_TEXT,
    Subject,
    engine_feeds,
    fault_feeds,
    subjects,
)
from conformance.case import case_directory
from conformance.checkpoints.store import write_checkpoint
from conformance.compare.verdict import unusable
from conformance.deviations import Deviation, Prediction, read_deviations
from conformance.errors import BadInput
from conformance.families import family_of
from conformance.faults import NOTHING, Fault, faults_of
from conformance.feeds import Feed, Forward
from conformance.limits import violation
from conformance.runs import Run, Session
from conformance.trials import models
from conformance.workers.host import Hello

__all__ = ["Plan", "conforming", "study"]

# An engine counts as one that conforms if no recorded difference can show in such a feed.
_PLAIN = Feed(tokens=((0,) * LONG,), steps=(Forward(LONG),))


@dataclass(frozen=True)
class Plan:
    """What the study runs.

    Attributes:
        family: whose releases and faults.
        backends: engines, beside the reference.
        models: models of each release.
        fault_models: those of them, the first, that every fault is tried on.
        processes: for the reference and the faults; each engine has its own worker besides.
        checkpoints: where generated checkpoints are kept.
        faults: ids of the bank; None for all of it.
    """

    family: str
    backends: tuple[str, ...]
    checkpoints: Path
    models: int = 20
    fault_models: int = 2
    processes: int = 2
    faults: tuple[str, ...] | None = None


def conforming(
    family: str, backends: Sequence[str], hellos: Mapping[str, Hello], deviations: Sequence[Deviation]
) -> dict[str, list[str]]:
    """Release → the backends that claim it and of which no prediction says that a plain row shows it."""

    def differs(name: str, release: str) -> bool:
        entries = [e for e in deviations if (e.backend, e.release) == (name, release)]
        ((spec, _),) = models(family, release, hellos[name].limits, 1)
        return any(isinstance(entry, Prediction) and entry.applies(spec, _PLAIN) for entry in entries)

    return {
        release.name: [
            name
            for name in backends
            if release.name in hellos[name].releases and not differs(name, release.name)
        ]
        for release in family_of(family).releases
    }


def study(plan: Plan, say: Callable[[str], None]) -> Records:
    """Measure everything.

    Args:
        plan: what to run.
        say: told what was done, line by line.

    Raises:
        BadInput: an engine cannot be started, or gives no logits for a feed that it says it can run.
    """
    deviations = read_deviations(case_directory() / "deviations", plan.backends)
    for name in plan.backends:
        backend_named(name).argv()
    with _session() as session, _pool(plan.processes) as pool:
        session.start(plan.backends)
        hellos = {name: session.hello(name) for name in plan.backends}
        say(f"started {', '.join(hellos)}")
        engines = conforming(plan.family, plan.backends, hellos, deviations)
        models = {
            release: subjects(
                plan.family, release, [{}, *(hellos[n].limits for n in names)], plan.models, plan.checkpoints
            )
            for release, names in engines.items()
        }
        asked = {
            subject: _Asked(session, subject, {name: hellos[name] for name in engines[release]})
            for release, drawn in models.items()
            for subject in drawn
        }
        # Faults first: they take longest.
        planted = [
            pool.submit(effects, subject, fault_feeds(subject), ids)
            for release in models
            for subject, ids in _plantings(plan, release)
        ]
        measured = {pool.submit(evaluate, subject, engine_feeds(subject)): subject for subject in asked}
        samples: list[Sample] = []
        levels: list[Level] = []
        found: list[Effect] = []
        everything: list[Future[Any]] = [*planted, *measured]
        for count, done in enumerate(as_completed(everything), 1):
            if done in measured:
                findings: Findings = done.result()
                samples += findings.samples
                levels += findings.levels
                samples += asked[measured[done]].samples(findings)
            else:
                found += done.result()
            say(f"{count} of {len(everything)}")
        hellos = {name: session.hello_again(name) or hello for name, hello in hellos.items()}
    facts = {
        "family": plan.family,
        "engines": {name: _facts(name, hello, engines) for name, hello in hellos.items()},
        "models": {release: len(drawn) for release, drawn in models.items()},
        "fault models": plan.fault_models,
        "host": {"python": platform.python_version(), "machine": platform.machine(), "numpy": np.__version__},
    }
    return gather(facts, samples, _in_bank_order(plan.family, found), sorted(levels, key=repr))


class _Asked:
    """The runs of one model on every engine that conforms and can take it, asked for ahead."""

    def __init__(self, session: Session, subject: Subject, hellos: Mapping[str, Hello]) -> None:
        self.subject = subject
        self.feeds = engine_feeds(subject)
        self.runs: dict[tuple[str, str, str], Future[Run]] = {}
        values = subject.spec.to_dict()
        for engine, hello in hellos.items():
            if violation(values, hello.limits) is not None:
                continue
            for dtype in (dtype for dtype in DTYPES if dtype in hello.dtypes):
                for name, feed in self.feeds.items():
                    if feed.requires <= hello.capabilities:
                        asked = session.run(engine, subject.checkpoint, replace(feed, dtype=dtype))
                        self.runs[engine, dtype, name] = asked

    def samples(self, findings: Findings) -> Iterator[Sample]:
        """Ratios against float64, and against the engine's own run of the same text, whole."""
        release, number = self.subject.release, self.subject.number
        for (engine, dtype, name), pending in self.runs.items():
            feed, judged = self.feeds[name], findings.judged[dtype, name]
            got = _logits(engine, feed, judged.exact, pending.result())
            group = Group(CONFORMING, engine, ALL_ORDERS, "float64", release, dtype, name)
            yield sample(group, number, feed, ratios_of(got, judged.exact, judged.noise))
            if name in SAME_TEXT:
                rows = SAME_TEXT[name]
                whole = self.runs[engine, dtype, "whole"].result().logits
                assert whole is not None
                noise = np.maximum(judged.noise, findings.judged[dtype, "whole"].noise[rows])
                yield sample(
                    replace(group, against="whole"), number, feed, ratios_of(got, whole[rows], noise)
                )


def _logits(engine: str, feed: Feed, exact: np.ndarray, run: Run) -> np.ndarray:
    cells = np.ones((feed.batch, feed.width), dtype=bool)
    problem = run.message if run.logits is None else unusable(run.logits, exact, cells, cells)
    if problem or run.logits is None:
        raise BadInput(f"{engine}, {feed.describe()}: {problem}, but an engine that conforms should run it")
    return run.logits


def _plantings(plan: Plan, release: str) -> Iterator[tuple[Subject, list[str]]]:
    """Models and the faults to try on each.

    The first models that any backend is dealt, with every fault; then variants of the first one, with
    the faults that show on no model before.
    """
    bank = [
        fault
        for fault in faults_of(plan.family).FAULTS
        if fault.reveals != NOTHING and (plan.faults is None or fault.id in plan.faults)
    ]
    chosen = subjects(plan.family, release, [{}], plan.fault_models, plan.checkpoints)
    unseen = {fault.id for fault in bank}
    for subject in chosen:
        yield subject, [fault.id for fault in bank]
        unseen -= {fault.id for fault in bank if _shows(fault, subject)}
    first = chosen[0].checkpoint
    for place, variant in enumerate(family_of(plan.family).layouts(chosen[0].spec), len(chosen) + 1):
        checkpoint = write_checkpoint(plan.checkpoints, variant.spec, first.seed or 0, variant.layout)
        subject = Subject(release, place, checkpoint)
        shown = [fault.id for fault in bank if fault.id in unseen and _shows(fault, subject)]
        unseen -= set(shown)
        if shown:
            yield subject, shown


def _shows(fault: Fault, subject: Subject) -> bool:
    feeds = fault_feeds(subject)
    return any(
        showing(fault, subject, {name: replace(feed, dtype=dtype) for name, feed in feeds.items()})
        for dtype in DTYPES
    )


def _in_bank_order(family: str, found: Sequence[Effect]) -> list[Effect]:
    places = {fault.id: place for place, fault in enumerate(faults_of(family).FAULTS)}
    return sorted(found, key=lambda one: (places[one.fault], one.dtype, one.release, one.model))


def _facts(name: str, hello: Hello, engines: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "releases": [release for release, names in engines.items() if name in names],
        "versions": dict(hello.versions),
        "numerics": dict(hello.numerics),
    }


@contextmanager
def _session() -> Iterator[Session]:
    session = Session()
    try:
        yield session
    finally:
        session.close()


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    # Spawned, not forked: the session has threads.
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
