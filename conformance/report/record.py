"""Records: a judged cell as plain data, and the three lines that a red one shows."""

from __future__ import annotations

import itertools
import re
from shlex import quote
from typing import TYPE_CHECKING, Any

from conformance.compare.verdict import Verdict
from conformance.deviations import Deviation, Prediction
from conformance.feeds import Feed
from conformance.predictions import predicted_words

if TYPE_CHECKING:
    from conformance.cells import Cell, CellResult, Finding
    from conformance.predictions import Predicted

__all__ = ["record_of", "verdict_data", "verdict_words"]


def record_of(
    cell: Cell, result: CellResult, nodeid: str, bundle: str | None = None, options: str = ""
) -> dict[str, Any]:
    """The record of one cell, as it stands in the JSON report (docs/report.md)."""
    return {
        "case": cell.case.id,
        "law": cell.case.law,
        "family": cell.family,
        "backend": cell.backend.name,
        "release": cell.release,
        "status": result.status,
        "reason": result.reason,
        "grade": result.grade,
        "ratio": result.worst,
        "trials": result.trials,
        "claims": result.claims,
        "refused": result.refused,
        "witnesses": result.witnesses,
        "measured": result.measured,
        "known": [_known(entry, ratio) for entry, ratio in result.explained.items()],
        "findings": [_finding(finding) for finding in result.findings],
        "nodeid": nodeid,
        "bundle": bundle,
        "lines": _lines(cell, result, nodeid, bundle, options) if result.status in ("fail", "error") else [],
    }


def _known(entry: Deviation, ratio: float | None) -> dict[str, Any]:
    faults = list(entry.ids) if isinstance(entry, Prediction) else []
    return {
        "what": entry.what,
        "evidence": entry.evidence,
        "entry": entry.source,
        "faults": faults,
        "ratio": ratio,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    verdict = finding.outcome.verdict
    return {
        "claim": finding.outcome.label,
        "text": finding.outcome.text,
        "model": _model(finding),
        "checkpoint": finding.checkpoint.identity,
        "verdict": verdict_data(verdict),
        "distance": distances(finding.claim.feeds[0], verdict, finding.trial.spec.window_size),
        "three_way": dict(finding.outcome.three_way),
        "prediction": _prediction(finding.outcome.predicted),
    }


def _prediction(predicted: Predicted | None) -> dict[str, Any] | None:
    if predicted is None:
        return None
    return {
        "faults": list(predicted.faults),
        "entries": [entry.source for entry in predicted.entries],
        "ratio": predicted.residual.ratio,
        "problem": predicted.residual.problem,
    }


def distances(feed: Feed, verdict: Verdict, window: int) -> dict[str, int] | None:
    """How far the first bad position lies from the window's edge, and beyond the last chunk border.

    Positions count from the row's first real token; the window's edge is position W, the first that may
    not see position 0.
    """
    place = verdict.first_bad
    if place is None:
        return None
    borders = [0, *itertools.accumulate(feed.chunks)]
    return {
        "from_window_edge": place.position - feed.real[place.row].start - window,
        "beyond_chunk_border": min(place.position - border for border in borders if border <= place.position),
    }


def _model(finding: Finding) -> str:
    if finding.checkpoint.seed is None:
        return f"{finding.trial.spec.describe()}, in {finding.checkpoint.path}"
    return finding.trial.describe()


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data."""
    place = verdict.first_bad
    return {
        "grade": verdict.grade.value,
        "compared": verdict.compared,
        "ratio": verdict.ratio,
        "max_abs": verdict.max_abs,
        "mean_abs": verdict.mean_abs,
        "max_ulp": verdict.max_ulp,
        "max_relative": verdict.max_relative,
        "max_kl": verdict.max_kl,
        "flips": verdict.flips,
        "near_ties": verdict.near_ties,
        "shift": verdict.shift,
        "bad": verdict.bad,
        "first_bad": None if place is None else [place.row, place.position],
        "problem": verdict.problem,
    }


def verdict_words(verdict: Verdict) -> str:
    """A verdict in a line: what is wrong with the run, or its grade and figures."""
    if verdict.problem:
        return f"{verdict.grade.value}: {verdict.problem}"
    return (
        f"{verdict.grade.value}, error / noise {verdict.ratio:.3g}, max abs {verdict.max_abs:.3g}, "
        f"{verdict.bad} of {verdict.compared} positions"
    )


def _lines(cell: Cell, result: CellResult, nodeid: str, bundle: str | None, options: str) -> list[str]:
    backend = quote(cell.backend.name)
    again = f"again: pytest {quote(nodeid)} --backend {backend} --release {cell.release}{options}"
    if bundle is not None:
        codes = re.findall(r" --release-code \S+", options)
        again = f"again: conformance replay {quote(bundle)}{''.join(codes)}"
    if not result.findings:
        return [
            f"what: {cell.case.id} on {cell.backend.name}, release {cell.release}: {result.reason}",
            again,
        ]
    finding = result.findings[0]
    verdict = finding.outcome.verdict
    where = f"{finding.outcome.text}; {_model(finding)}"
    if verdict.first_bad is not None:
        distance = distances(finding.claim.feeds[0], verdict, finding.trial.spec.window_size)
        beyond = distance["from_window_edge"] if distance else 0
        edge = f"W{beyond:+d}" if beyond else "W"
        where = f"first bad at {verdict.first_bad} ({edge}): {where}"
    predicted = finding.outcome.predicted
    besides = f"; {predicted_words(predicted.faults, predicted.residual)}" if predicted is not None else ""
    return [
        f"what: {cell.case.id} on {cell.backend.name}, release {cell.release}: "
        f"{finding.outcome.label}: {verdict_words(verdict)}{besides} ({result.reason})",
        f"where: {where}",
        again,
    ]
