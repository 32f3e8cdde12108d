"""A diagnosis: probes run, faults fitted, ties broken where they can be, evidence collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

import numpy as np

from conformance.compare.noise import Truth
from conformance.compare.verdict import ROUNDING, Place
from conformance.faults import faults_of, find
from conformance.runs import Run, Runner
from conformance.triage.predictions import Faults, Predictions
from conformance.triage.probes import (
    Probe,
    Setting,
    further_probes,
    kind_probes,
    ladder,
    on_other_models,
    span_claims,
)
from conformance.triage.readings import Reading, share_of
from conformance.triage.search import Rival, Search

__all__ = [
    "CONFORMS",
    "NAMED",
    "UNJUDGED",
    "UNKNOWN",
    "Diagnosis",
    "Finding",
    "Span",
    "diagnose",
    "diagnose_readings",
]

CONFORMS, NAMED, UNKNOWN, UNJUDGED = "conforms", "named", "unknown", "unjudged"
# Hypotheses to tell apart and to show, and probes spent on it.
_TIES, _TELLING = 8, 6
# An engine's own errors that are no wrong answers: it declines what it cannot do.
_DECLINED = ("refused", "unsupported")
_FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One probe in the light of the diagnosis.

    Attributes:
        probe: what was run.
        before: largest error / noise from the reference.
        after: the same from the reference with the named faults; None where none were named.
        share: share of the difference that is left then.
        faults: those of the named faults that can show here.
        bad: positions worse than rounding, of `positions`.
        positions: positions compared.
        first_bad: the first of them.
    """

    probe: Probe
    before: float
    after: float | None
    share: float | None
    faults: Faults
    bad: int
    positions: int
    first_bad: Place | None


@dataclass(frozen=True)
class Span:
    """How many tokens the last query of a local layer saw, and should have seen, in one kind of run."""

    phase: str
    seen: int
    expected: int


@dataclass(frozen=True)
class Diagnosis:
    """What triage found.

    Attributes:
        release: whose meaning the backend was held against.
        status: `conforms`; `named`: some faults explain everything; `unknown`: no set was found; or
            `unjudged`: no probe was answered.
        named: the smallest set of faults that leaves nothing but rounding.
        ties: other sets that no probe could tell from it.
        parts: named fault → largest error / noise that the others leave without it, and with it, over the
            probes on which it can show.
        by_phase: phase → faults, where no one set explains all phases; phases that no set explains either
            are left out, and the status is `unknown`.
        findings: the probes, in order.
        rivals: what was tried besides, and what it left; best first.
        spans: effective window spans.
        kinds: kind of layer → does a model of one such layer differ?
        problems: probe → why it gave no logits, where it should have.
        declined: probe → why the engine declined it with an error of its own, or one that is recorded.
        stuck: the probe on which no set was found.
    """

    release: str
    status: str
    named: Faults
    ties: tuple[Faults, ...]
    parts: dict[str, tuple[float, float]]
    by_phase: dict[str, Faults]
    findings: tuple[Finding, ...]
    rivals: tuple[Rival, ...]
    spans: tuple[Span, ...]
    kinds: dict[str, bool]
    problems: dict[str, str]
    declined: dict[str, str]
    stuck: str | None

    @property
    def start(self) -> Finding | None:
        """The plainest probe that differs."""
        return next((finding for finding in self.findings if finding.bad), None)


def diagnose(
    runner: Runner,
    backend: str,
    setting: Setting,
    predictions: Predictions,
    tell: Callable[[str], None] = lambda words: None,
    known_refusals: Sequence[str] = (),
    *,
    measure: bool = True,
) -> Diagnosis:
    """Name what a backend does otherwise than a release.

    Args:
        runner: makes runs and truths, each once.
        backend: whose runs.
        setting: what may be asked of it.
        predictions: what faults would do; shared between diagnoses of one family.
        tell: told what is being done, in a few words.
        known_refusals: patterns of problems that are recorded already, and count for nothing here.
        measure: whether to measure, where something differs, the window and the kinds of layers too.
    """
    probes = ladder(setting, faults_of(setting.family).FAULTS)
    tell(f"{len(probes)} probes on {setting.release}")
    ask = _Asker(runner, backend, known_refusals)
    readings = ask.readings(probes)
    readings += _unanswered(ask, setting, readings)
    found = _fit(setting, predictions, readings, tell)
    if found.search.stuck is None and len(found.search.hypotheses) > 1:
        tell(f"telling {len(found.search.hypotheses)} explanations apart")
        _tell_apart(found.search, ask, further_probes(setting), predictions)
    diagnosis = _summary(setting.release, found, ask.problems, ask.declined)
    if diagnosis.status in (CONFORMS, UNJUDGED) or not measure:
        return diagnosis
    tell("measuring the window")
    return replace(diagnosis, spans=tuple(_spans(runner, backend, setting)), kinds=_kinds(ask, setting))


def diagnose_readings(
    setting: Setting,
    readings: Sequence[Reading],
    predictions: Predictions,
    tell: Callable[[str], None] = lambda words: None,
) -> Diagnosis:
    """The same from runs that are there already; nothing more is run."""
    return _summary(setting.release, _fit(setting, predictions, readings, tell), {}, {})


def _unanswered(ask: _Asker, setting: Setting, readings: Sequence[Reading]) -> list[Reading]:
    """Readings on other models, of the probes that the engine could not answer, though it is alive."""
    if not readings:
        return []
    why = {**ask.problems, **ask.declined}
    missing = {name for name, words in why.items() if words.partition(":")[0] in (*_DECLINED, _FAILED)}
    found: list[Reading] = []
    again = _Asker(ask.runner, ask.backend, ask.known_refusals)
    for probes in on_other_models(setting, missing):
        answered = again.readings(probes)
        found += answered
        missing -= {_plain_name(reading.probe.name) for reading in answered}
        if not missing:
            break
    # What is said of the first model need not be said again; a crash where that one was declined is news.
    ask.problems |= {name: why for name, why in again.problems.items() if _plain_name(name) in ask.declined}
    return found


def _plain_name(name: str) -> str:
    """Of a probe on another model, the name that it has on the first one."""
    return name.rpartition(", model")[0]


class _Asker:
    """Asks a backend for probes; keeps why some were not answered."""

    def __init__(self, runner: Runner, backend: str, known_refusals: Sequence[str]) -> None:
        self.runner, self.backend = runner, backend
        self.known_refusals = known_refusals
        self.problems: dict[str, str] = {}
        self.declined: dict[str, str] = {}

    def readings(self, probes: Iterable[Probe]) -> list[Reading]:
        """Readings of the probes that were answered, all asked for side by side."""
        asked: list[tuple[Probe, Future[Run], Future[Truth]]] = [
            (
                probe,
                self.runner.run(self.backend, probe.checkpoint, probe.feed),
                self.runner.truth(probe.checkpoint, probe.feed),
            )
            for probe in probes
        ]
        found: list[Reading] = []
        for probe, pending, truth in asked:
            run = self.runner.wait("engine", pending)
            if run.logits is None:
                why = f"{run.kind}: {run.message}"
                known = any(fnmatchcase(why, pattern) for pattern in self.known_refusals)
                kept = self.declined if known or run.kind in _DECLINED else self.problems
                kept[probe.name] = why
            else:
                found.append(Reading(probe, run, self.runner.wait("reference", truth)))
        return found


@dataclass(frozen=True)
class _Fit:
    search: Search
    readings: Sequence[Reading]
    by_phase: dict[str, Faults]


def _fit(
    setting: Setting, predictions: Predictions, readings: Sequence[Reading], tell: Callable[[str], None]
) -> _Fit:
    bank = faults_of(setting.family).FAULTS
    search = Search(predictions, bank)
    for reading in readings:
        if not reading.conforms:
            tell(f"fitting faults to: {reading.probe.name}")
        search.take(reading)
    by_phase: dict[str, Faults] = {}
    if search.stuck is not None:
        for phase in dict.fromkeys(reading.probe.phase for reading in readings):
            tell(f"fitting faults to {phase} alone")
            own = Search(predictions, bank)
            for reading in readings:
                if reading.probe.phase == phase:
                    own.take(reading)
            if own.stuck is None:
                by_phase[phase] = own.hypotheses[0]
    return _Fit(search, readings, by_phase)


def _tell_apart(search: Search, ask: _Asker, pool: Sequence[Probe], predictions: Predictions) -> None:
    """Run the probes on which tied hypotheses predict what differs by more than rounding."""
    for _ in range(_TELLING):
        tied = search.hypotheses[:_TIES]
        if len(tied) == 1 or _are_twins(predictions.family, tied):
            return
        known = {r.probe.name for r in search.readings} | set(ask.problems) | set(ask.declined)
        for probe in pool:
            if probe.name in known or not _disagree(search, ask, probe, tied, predictions):
                continue
            for reading in ask.readings([probe]):
                search.take(reading)
            if search.stuck is not None:
                return
            break
        else:
            return


def _disagree(
    search: Search, ask: _Asker, probe: Probe, tied: Sequence[Faults], predictions: Predictions
) -> bool:
    """Do two of them predict what differs by more than rounding?"""
    if len({predictions.visible(probe, faults) for faults in tied}) == 1:
        return False
    exact = predictions.exact(probe, tied)
    for one, other in combinations(tied, 2):
        left, right = exact[one], exact[other]
        if left is None or right is None or left.shape != right.shape:
            return True
        apart = np.abs(left - right).max(axis=-1)
        if not apart.any():
            continue
        truth = ask.runner.wait("reference", ask.runner.truth(probe.checkpoint, probe.feed))
        if (apart > 2 * ROUNDING * truth.noise).any():
            return True
    return False


def _are_twins(family: str, tied: Sequence[Faults]) -> bool:
    """Does the bank say of each two of them that no run tells them apart?"""
    bank = faults_of(family).FAULTS

    def twins(one: Faults, other: Faults) -> bool:
        mine, theirs = set(one) - set(other), set(other) - set(one)
        return len(mine) == len(theirs) == 1 and bool(theirs & set(find(bank, *mine).twins))

    return all(twins(one, other) for one, other in combinations(tied, 2))


def _summary(release: str, fit: _Fit, problems: dict[str, str], declined: dict[str, str]) -> Diagnosis:
    search = fit.search
    named: Faults = search.hypotheses[0] if search.stuck is None else ()
    # Those that told hypotheses apart were taken in besides; one of them may have left none standing.
    taken = [*search.readings, *([search.stuck] if search.stuck is not None else [])]
    readings = [*fit.readings, *(r for r in taken if not any(r is one for one in fit.readings))]
    if not readings:
        status = UNJUDGED
    elif search.stuck is not None or (problems and not named):
        phases = {reading.probe.phase for reading in readings}
        status = NAMED if phases == set(fit.by_phase) and not problems else UNKNOWN
    else:
        status = NAMED if named else CONFORMS
    return Diagnosis(
        release=release,
        status=status,
        named=named,
        ties=tuple(search.hypotheses[1:_TIES]) if search.stuck is None else (),
        parts={name: _part(search, readings, named, name) for name in named},
        by_phase=fit.by_phase,
        findings=tuple(_finding(search, reading, named, fit.by_phase) for reading in readings),
        rivals=tuple(search.rivals),
        spans=(),
        kinds={},
        problems=problems,
        declined=declined,
        stuck=None if search.stuck is None else search.stuck.probe.name,
    )


def _finding(search: Search, reading: Reading, named: Faults, by_phase: dict[str, Faults]) -> Finding:
    faults = by_phase.get(reading.probe.phase, named)
    shown = search.predictions.visible(reading.probe, faults)
    after = share = None
    if faults:
        left = search.left(reading, faults)
        after, share = float(left.max()), share_of(reading.plain, left)
    return Finding(
        probe=reading.probe,
        before=float(reading.plain.max()),
        after=after,
        share=share,
        faults=shown,
        bad=int((reading.plain > ROUNDING).sum()),
        positions=len(reading.plain),
        first_bad=reading.first_bad,
    )


def _part(search: Search, readings: Sequence[Reading], named: Faults, name: str) -> tuple[float, float]:
    """What the other named faults leave without one of them, and what all of them leave."""
    others = tuple(other for other in named if other != name)
    shown = [reading for reading in readings if search.predictions.visible(reading.probe, (name,))]
    without = max(float(search.left(reading, others).max()) for reading in shown)
    return without, max(float(search.left(reading, named).max()) for reading in shown)


def _spans(runner: Runner, backend: str, setting: Setting) -> list[Span]:
    found: list[Span] = []
    for checkpoint, claim in span_claims(setting):
        pending = {feed.key: runner.run(backend, checkpoint, feed) for feed in claim.feeds}
        awaited = {feed.key: runner.truth(checkpoint, feed) for feed in claim.truths}
        runs = {key: runner.wait("engine", future) for key, future in pending.items()}
        truths = {key: runner.wait("reference", future) for key, future in awaited.items()}
        measured: Any = claim.judge(runs, truths).measured.get("span")
        if measured is not None:
            found.append(Span(claim.label, measured["seen"], measured["expected"]))
    return found


def _kinds(ask: _Asker, setting: Setting) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for reading in ask.readings(kind_probes(setting)):
        kind = reading.probe.spec.probes or "every"
        found[kind] = found.get(kind, False) or not reading.conforms
    return found
