"""Cells: one case on one backend for one release. Running its trials, and what the results amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.backends.registry import Backend
from conformance.case import Case, Trial
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import Claim, Outcome, Witness
from conformance.compare.verdict import Grade
from conformance.deviations import Deviation, Prediction, Refusal
from conformance.errors import Unsupported
from conformance.judging import judge_plan
from conformance.limits import violation
from conformance.predictions import Standing, predictions_of, shown
from conformance.runs import Runner
from conformance.trials import deal
from conformance.workers.host import Hello

__all__ = [
    "ERROR",
    "FAIL",
    "KNOWN",
    "NOT_APPLICABLE",
    "PASS",
    "Cell",
    "CellResult",
    "Finding",
    "inapplicable",
    "judge",
]

PASS, KNOWN, FAIL, ERROR, NOT_APPLICABLE = "pass", "known", "fail", "error", "n/a"


@dataclass(frozen=True)
class Cell:
    """One square of the matrix."""

    case: Case
    backend: Backend
    family: str
    release: str

    @property
    def label(self) -> str:
        """Backend and release, as in node ids."""
        own = self.backend.release_code == self.release
        return self.backend.name if own else f"{self.backend.name}-{self.release}"


@dataclass(frozen=True)
class Finding:
    """One failing claim, with the trial that it failed on."""

    trial: Trial
    checkpoint: Checkpoint
    claim: Claim
    outcome: Outcome


@dataclass
class CellResult:
    """What came out of a cell.

    Attributes:
        status: `pass`, `known`, `fail`, `error` or `n/a`.
        reason: why, for everything that is not a pass.
        trials: trials judged.
        refused: claims that hold because the engine declined.
        claims: claims judged.
        witnesses: witness → trials in which it held.
        worst: the worst passing or failing ratio of error to noise.
        grade: the worst grade.
        findings: failing claims that no deviation explains.
        explained: deviations that explain the others, with the largest error / noise against what they
            predict; None for refusals, which predict no number.
        gone: predictions that no longer show, with a claim that says so.
        applied: predictions that could show in a claim.
        measured: numbers that claims report, by label.
    """

    status: str
    reason: str = ""
    trials: int = 0
    claims: int = 0
    refused: int = 0
    witnesses: dict[str, int] = field(default_factory=dict)
    worst: float = 0.0
    grade: str = Grade.EXACT.value
    findings: list[Finding] = field(default_factory=list)
    explained: dict[Deviation, float | None] = field(default_factory=dict)
    gone: list[tuple[Prediction, Finding]] = field(default_factory=list)
    applied: tuple[Prediction, ...] = ()
    measured: dict[str, list[Any]] = field(default_factory=dict)


def inapplicable(cell: Cell, hello: Hello, brought: Checkpoint | None = None) -> str | None:
    """Why a backend cannot be asked to run a case, or None."""
    if brought is not None and (cell.case.specs or cell.case.fixed or cell.case.variants):
        return "needs models of its own"
    missing = sorted(cell.case.needs - hello.capabilities)
    if missing:
        return f"no {', '.join(missing)}"
    lacking = sorted(cell.case.dtypes - set(hello.dtypes))
    if lacking:
        return f"no {', '.join(lacking)}"
    if cell.case.own_code and cell.backend.release_code != cell.release:
        return "speaks of the release's own code"
    if cell.case.fixed is not None:
        for variant in cell.case.fixed(cell.family, cell.release):
            broken = violation(variant.spec.to_dict(), hello.limits)
            if broken:
                return broken
    return None


def judge(
    session: Runner,
    cell: Cell,
    hello: Hello,
    deviations: Sequence[Deviation],
    *,
    examples: int,
    checkpoints: Path,
    brought: Checkpoint | None = None,
) -> CellResult:
    """Run and judge the trials of a cell.

    Args:
        session: workers and shared runs.
        cell: what to judge.
        hello: what the backend declared.
        deviations: entries of the backend for the release.
        examples: models to draw.
        checkpoints: where generated checkpoints are kept.
        brought: a checkpoint of the user's, instead of drawn models.
    """
    reason = inapplicable(cell, hello, brought)
    if reason is not None:
        return CellResult(NOT_APPLICABLE, reason)
    result = CellResult(PASS)
    predictions = predictions_of(deviations, hello.versions)
    covering = [e for e in deviations if isinstance(e, Refusal) and e.covers(cell.case.id)]
    refusals = [entry for entry in covering if entry.outdated(hello.versions) is None]
    matched: set[tuple[Refusal, str]] = set()
    met: set[Refusal] = set()
    declined_trials: list[str] = []
    for trial in deal(cell.case, cell.family, cell.release, hello.limits, examples, brought):
        checkpoint = brought or write_checkpoint(checkpoints, trial.spec, trial.seed, trial.layout)
        plan = cell.case.plan(trial)
        try:
            outcomes = judge_plan(session, cell.backend.name, checkpoint, plan, predictions)
        except Unsupported as declined:
            declined_trials.append(str(declined))
            continue
        result.trials += 1
        result.claims += len(outcomes)
        result.applied = tuple(dict.fromkeys((*result.applied, *shown(outcomes))))
        _count_witnesses(result, plan.witnesses, len(plan.claims))
        concerned = [entry for entry in refusals if entry.speaks_of(trial.spec)]
        met.update(concerned)
        for claim, outcome in zip(plan.claims, outcomes, strict=True):
            _note(result, outcome)
            _sort(result, concerned, matched, Finding(trial, checkpoint, claim, outcome))
    if not result.trials:
        reason = declined_trials[0] if declined_trials else "no trial for this release"
        return CellResult(NOT_APPLICABLE, reason)
    if declined_trials and result.status == PASS:
        every = result.trials + len(declined_trials)
        result.reason = f"{len(declined_trials)} of {every} trials declined: {declined_trials[0]}"
    _settle(result, [entry for entry in refusals if entry in met], matched)
    outdated = _outdated(deviations, hello, cell, result.findings)
    result.reason += "".join(f"; {why}" for why in outdated)
    return result


def _sort(
    result: CellResult, refusals: Sequence[Refusal], matched: set[tuple[Refusal, str]], judged: Finding
) -> None:
    """Is a judged claim explained, does it say that an entry is gone, or is it a finding?"""
    outcome = judged.outcome
    predicted = outcome.predicted
    if predicted is not None and predicted.standing is Standing.GONE:
        result.gone += [(entry, judged) for entry in predicted.gone]
    elif predicted is not None and predicted.standing is Standing.KNOWN:
        for entry in predicted.entries:
            result.explained[entry] = max(result.explained.get(entry) or 0.0, predicted.residual.ratio)
    elif not outcome.holds:
        problem = outcome.verdict.problem
        patterns = [(refusal, p) for refusal in refusals for p in refusal.explains(outcome.label, problem)]
        matched.update(patterns)
        result.explained |= {refusal: None for refusal, _ in patterns}
        if not patterns:
            result.findings.append(judged)


def _count_witnesses(result: CellResult, witnesses: Sequence[Witness], claims: int) -> None:
    for witness in witnesses:
        result.witnesses[witness.name] = result.witnesses.get(witness.name, 0) + witness.held
        if not witness.held:
            result.status, result.reason = ERROR, f"no witness: {witness.name}"
    if not witnesses or not claims:
        result.status, result.reason = ERROR, "a case needs at least one claim and one witness"


def _note(result: CellResult, outcome: Outcome) -> None:
    order = [grade.value for grade in Grade]
    grade = outcome.verdict.grade.value
    if order.index(grade) > order.index(result.grade):
        result.grade = grade
    result.refused += outcome.refused
    result.worst = max(result.worst, outcome.verdict.ratio)
    for name, value in outcome.measured.items():
        result.measured.setdefault(f"{outcome.label}: {name}", []).append(value)


def _settle(result: CellResult, refusals: Sequence[Refusal], matched: set[tuple[Refusal, str]]) -> None:
    if result.findings:
        broken = any(finding.outcome.verdict.grade is Grade.ERROR for finding in result.findings)
        result.status = ERROR if broken else FAIL
        result.reason = f"{len(result.findings)} of {result.claims} claims failed"
        if result.gone:
            result.reason += f"; {_gone(result)}"
    elif result.status == PASS:
        lost = [(entry, p) for entry in refusals for p in entry.claims if (entry, p) not in matched]
        if result.gone:
            result.status, result.reason = FAIL, _gone(result)
        elif lost:
            entry, pattern = lost[0]
            result.status = FAIL
            result.reason = f"deviation gone: {pattern!r} of {entry.source} no longer happens; remove it"
        elif result.explained:
            result.status = KNOWN
            result.reason = "; ".join(dict.fromkeys(entry.what for entry in result.explained))


def _gone(result: CellResult) -> str:
    """Which predictions no longer show, and in which claim first."""
    claims = {entry: judged.outcome.label for entry, judged in reversed(result.gone)}
    words = [
        f"{entry.source} ({', '.join(entry.ids)}) does not show in {claims[entry]!r}"
        for entry in dict.fromkeys(entry for entry, _ in result.gone)
    ]
    return f"deviation gone: {', '.join(words)}; remove it"


def _outdated(
    deviations: Sequence[Deviation], hello: Hello, cell: Cell, findings: Sequence[Finding]
) -> list[str]:
    """The entries that might have explained a finding, had they been written for these versions."""
    whys = {entry: entry.outdated(hello.versions) for entry in deviations}
    return [
        why
        for entry, why in whys.items()
        if why is not None and any(_might_explain(entry, cell, finding) for finding in findings)
    ]


def _might_explain(entry: Deviation, cell: Cell, finding: Finding) -> bool:
    outcome = finding.outcome
    if isinstance(entry, Prediction):
        return any(entry.applies(finding.trial.spec, feed) for feed in finding.claim.feeds)
    assert isinstance(entry, Refusal)
    return entry.covers(cell.case.id) and bool(entry.explains(outcome.label, outcome.verdict.problem))
