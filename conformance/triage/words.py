"""A diagnosis in words and as plain data (docs/triage.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.compare.verdict import ROUNDING
from conformance.faults import faults_of, find
from conformance.triage.diagnosis import CONFORMS, NAMED, UNJUDGED, Diagnosis, Finding

__all__ = ["diagnosis_data", "diagnosis_lines", "headline"]

_RIVALS = 3
_NAMED = 4


def headline(backend: str, family: str, diagnosis: Diagnosis) -> str:
    """The diagnosis in one line."""
    subject = f"{backend} on {diagnosis.release}"
    count = len(diagnosis.findings)
    if diagnosis.status == CONFORMS:
        worst = max(finding.before for finding in diagnosis.findings)
        bound = f"up to {ROUNDING:g} is rounding"
        return f"{subject}: conforms: {count} probes, error / noise {worst:.2g} at most ({bound})"
    if diagnosis.status == UNJUDGED:
        return f"{subject}: could not be judged: no probe gave logits"
    differ = sum(finding.bad > 0 for finding in diagnosis.findings)
    if diagnosis.status == NAMED:
        names = " + ".join(diagnosis.named) or "another set of faults in each phase"
        return f"{subject}: {names}: explains all {differ} probes that differ, of {count}"
    if not differ:
        return f"{subject}: unknown: {len(diagnosis.problems)} probes gave no logits, the others conform"
    return f"{subject}: unknown: {differ} of {count} probes differ, and no set of known faults explains them"


def diagnosis_lines(backend: str, family: str, diagnosis: Diagnosis) -> Iterator[str]:
    """The diagnosis for people, line by line."""
    yield headline(backend, family, diagnosis)
    if diagnosis.status in (CONFORMS, UNJUDGED):
        yield from _problem_lines(diagnosis)
        return
    for name in diagnosis.named:
        yield from _fault_lines(family, name)
        without, left = diagnosis.parts[name]
        yield f"    without it {without:.3g} times the noise is left, with it {left:.3g}"
    for phase, faults in diagnosis.by_phase.items():
        if faults:
            yield f"  {phase} alone: {' + '.join(faults)}"
        for name in faults:
            yield from _fault_lines(family, name)
    for tie in diagnosis.ties:
        yield f"  or, which no run of this backend tells from it: {' + '.join(tie)}"
    yield from _evidence_lines(diagnosis)
    yield from _rival_lines(diagnosis)
    yield from _problem_lines(diagnosis)


def _fault_lines(family: str, name: str) -> Iterator[str]:
    fault = find(faults_of(family).FAULTS, name)
    yield f"  {name}: {fault.what} ({fault.part}; {fault.section})"


def _evidence_lines(diagnosis: Diagnosis) -> Iterator[str]:
    for span in diagnosis.spans:
        should = "as it should" if span.seen == span.expected else f"but should see {span.expected}"
        yield f"  window: in {span.phase}, the last query of a local layer sees {span.seen} tokens, {should}"
    start = diagnosis.start
    if start is not None and start.first_bad is not None:
        yield f"  starts: {_start_words(start)}"
    if diagnosis.kinds:
        words = ", ".join(
            f"{kind} {'differs' if bad else 'conforms'}" for kind, bad in diagnosis.kinds.items()
        )
        yield f"  models of one layer: {words}"
    yield "  error / noise, largest of each kind of run:"
    for phase in dict.fromkeys(finding.probe.phase for finding in diagnosis.findings):
        of = [finding for finding in diagnosis.findings if finding.probe.phase == phase]
        yield f"    {phase + ':':18}{_phase_words(of)}"
    if diagnosis.stuck is not None:
        yield f"  no set of known faults explains the probe: {diagnosis.stuck}"


def _phase_words(findings: Sequence[Finding]) -> str:
    before = max(finding.before for finding in findings)
    differ = sum(finding.bad > 0 for finding in findings)
    words = f"{before:.3g} from the reference, {differ} of {len(findings)} probes differ"
    after = [finding.after for finding in findings if finding.after is not None]
    if not differ:
        return f"{before:.3g} from the reference: conforms"
    if not after:
        return words
    shown = dict.fromkeys(name for finding in findings for name in finding.faults)
    return f"{words}; {max(after):.3g} from the reference with {' + '.join(shown)}"


def _start_words(finding: Finding) -> str:
    place, probe = finding.first_bad, finding.probe
    assert place is not None
    beyond = place.position - probe.feed.real[place.row].start - probe.spec.window_size
    edge = f"W{beyond:+d}" if beyond else "W"
    return (
        f"{probe.name} ({probe.feed.describe()}), at {place}, which is {edge}; "
        f"{finding.bad} of {finding.positions} positions differ"
    )


def _rival_lines(diagnosis: Diagnosis) -> Iterator[str]:
    rivals = [rival for rival in diagnosis.rivals if set(rival.faults) != set(diagnosis.named)]
    for rival in rivals[:_RIVALS]:
        word = "nearest" if diagnosis.status != NAMED else "runner-up"
        yield (
            f"  {word}: {' + '.join(rival.faults)} leaves {100 * rival.left:.3g} % of the difference, "
            f"{rival.worst:.3g} times the noise, of: {rival.probe}"
        )


def _problem_lines(diagnosis: Diagnosis) -> Iterator[str]:
    for names, why in _by_reason(diagnosis.problems):
        yield f"  no logits of: {names}: {why}"
    for names, why in _by_reason(diagnosis.declined):
        yield f"  declined, which counts for nothing: {names}: {why}"


def _by_reason(problems: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Probes with the same problem together."""
    for why in dict.fromkeys(problems.values()):
        names = [name for name, other in problems.items() if other == why]
        more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield ", ".join(names[:_NAMED]) + more, why


def diagnosis_data(backend: str, family: str, diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON."""
    return {
        "backend": backend,
        "family": family,
        "release": diagnosis.release,
        "status": diagnosis.status,
        "sentence": headline(backend, family, diagnosis),
        "faults": [
            {
                **_fault_data(family, name),
                "ratio_without": _number(diagnosis.parts[name][0]),
                "ratio_with": _number(diagnosis.parts[name][1]),
            }
            for name in diagnosis.named
        ],
        "by_phase": {phase: list(faults) for phase, faults in diagnosis.by_phase.items()},
        "ties": [list(tie) for tie in diagnosis.ties],
        "probes": [
            {
                "name": finding.probe.name,
                "phase": finding.probe.phase,
                "model": finding.probe.spec.describe(),
                "feed": finding.probe.feed.describe(),
                "positions": finding.positions,
                "bad": finding.bad,
                "first_bad": None
                if finding.first_bad is None
                else [finding.first_bad.row, finding.first_bad.position],
                "ratio": _number(finding.before),
                "ratio_with_faults": _number(finding.after),
                "share_left": _number(finding.share),
                "faults": list(finding.faults),
            }
            for finding in diagnosis.findings
        ],
        "rivals": [
            {
                "faults": list(rival.faults),
                "probe": rival.probe,
                "share_left": rival.left,
                "ratio": _number(rival.worst),
            }
            for rival in diagnosis.rivals
        ],
        "window": {span.phase: {"seen": span.seen, "expected": span.expected} for span in diagnosis.spans},
        "kinds": diagnosis.kinds,
        "problems": diagnosis.problems,
        "declined": diagnosis.declined,
        "stuck": diagnosis.stuck,
    }


def _fault_data(family: str, name: str) -> dict[str, Any]:
    fault = find(faults_of(family).FAULTS, name)
    return {"id": name, "what": fault.what, "part": fault.part, "section": fault.section}


def _number(value: float | None) -> float | None:
    """JSON has no infinity: null."""
    return None if value is None or not np.isfinite(value) else value
