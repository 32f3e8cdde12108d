"""Cells: one case on one backend for one release. Running its trials, and what the results amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.backends.registry import Backend
from conformance.case import Case, Trial
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import Claim, Outcome, Witness
from conformance.compare.verdict import Grade
from conformance.deviations import Deviation
from conformance.errors import Unsupported
from conformance.judging import judge_plan
from conformance.limits import violation
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
        explained: deviations that explain the others.
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
    explained: list[Deviation] = field(default_factory=list)
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
        deviations: entries that cover this cell.
        examples: models to draw.
        checkpoints: where generated checkpoints are kept.
        brought: a checkpoint of the user's, instead of drawn models.
    """
    reason = inapplicable(cell, hello, brought)
    if reason is not None:
        return CellResult(NOT_APPLICABLE, reason)
    result = CellResult(PASS)
    explained: set[tuple[Deviation, str]] = set()
    declined_trials: list[str] = []
    for trial in deal(cell.case, cell.family, cell.release, hello.limits, examples, brought):
        checkpoint = brought or write_checkpoint(checkpoints, trial.spec, trial.seed, trial.layout)
        plan = cell.case.plan(trial)
        try:
            outcomes = judge_plan(session, cell.backend.name, checkpoint, plan)
        except Unsupported as declined:
            declined_trials.append(str(declined))
            continue
        result.trials += 1
        result.claims += len(outcomes)
        _count_witnesses(result, plan.witnesses, len(plan.claims))
        for claim, outcome in zip(plan.claims, outcomes, strict=True):
            _note(result, outcome)
            if outcome.holds:
                continue
            label, problem = outcome.label, outcome.verdict.problem
            entry = next((d for d in deviations if d.explains(label, problem)), None)
            if entry is None:
                result.findings.append(Finding(trial, checkpoint, claim, outcome))
            else:
                explained.update((entry, pattern) for pattern in entry.claims if fnmatchcase(label, pattern))
    if not result.trials:
        reason = declined_trials[0] if declined_trials else "no trial for this release"
        return CellResult(NOT_APPLICABLE, reason)
    if declined_trials and result.status == PASS:
        every = result.trials + len(declined_trials)
        result.reason = f"{len(declined_trials)} of {every} trials declined: {declined_trials[0]}"
    _settle(result, deviations, explained)
    return result


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


def _settle(
    result: CellResult, deviations: Sequence[Deviation], explained: set[tuple[Deviation, str]]
) -> None:
    result.explained = [d for d in deviations if any(entry is d for entry, _ in explained)]
    if result.findings:
        broken = any(finding.outcome.verdict.grade is Grade.ERROR for finding in result.findings)
        result.status = ERROR if broken else FAIL
        result.reason = f"{len(result.findings)} of {result.claims} claims failed"
    elif result.status == PASS:
        gone = [(d, p) for d in deviations for p in d.claims if (d, p) not in explained]
        if gone:
            entry, pattern = gone[0]
            result.status = FAIL
            result.reason = f"deviation gone: {pattern!r} of {entry.source} no longer happens; remove it"
        elif result.explained:
            result.status = KNOWN
            result.reason = "; ".join(d.what for d in result.explained)
