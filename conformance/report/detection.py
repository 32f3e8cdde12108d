"""The pages that the kill matrix writes: who catches which kinds of fault, and every fault's catchers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.case import Case
from conformance.detection import Catch
from conformance.families import FAMILIES
from conformance.faults import NOTHING, ROUNDING, Fault, by_kind

__all__ = ["cases_page", "detection_page", "page_name"]

_COMMAND = "nox -s mutants"
# A kind that more cases than this catch is caught by nearly everything; naming them all says nothing.
_NAMED = 8


def page_name(stem: str, family: str) -> str:
    """The file of a family's page: `cases.md` of the first family, `cases-<family>.md` of another."""
    return f"{stem}.md" if family == next(iter(FAMILIES)) else f"{stem}-{family}.md"


def _command(family: str) -> str:
    return _COMMAND if family == next(iter(FAMILIES)) else f"{_COMMAND} -- --family {family}"


def cases_page(family: str, cases: Sequence[Case], faults: Sequence[Fault], catches: Sequence[Catch]) -> str:
    """docs/cases.md: every law, how many faults of each part it caught, and who catches which kind."""
    command, detection = _command(family), page_name("detection", family)
    parts = {part: [f.id for f in faults if f.part == part] for part in dict.fromkeys(f.part for f in faults)}
    lines = [
        "# Cases",
        "",
        f"Written by `{command}`: each of {len(faults)} faults ([{detection}]({detection})) is planted in",
        "an implementation that otherwise conforms, and every case judges it.",
        "",
        "## Laws",
        "",
        "| case | law |",
        "|---|---|",
        *(f"| `{case.id}` | {case.law} |" for case in cases),
        "",
        "## Faults caught, by part of the model",
        "",
        "| case | " + " | ".join(f"{part} ({len(ids)})" for part, ids in parts.items()) + " |",
        "|---|" + "---:|" * len(parts),
    ]
    for case in cases:
        if case.own_code:
            continue
        caught = {catch.fault for catch in catches if catch.case == case.id}
        counts = [str(len(caught & set(ids)) or "") for ids in parts.values()]
        lines.append(f"| `{case.id}` | " + " | ".join(counts) + " |")
    lines += ["", "`published/*` bound the rounding of a release's own code; no fault is planted there.", ""]
    lines += [
        "## Kinds of fault, and the cases that catch them",
        "",
        "| kind | faults | cases |",
        "|---|---:|---|",
    ]
    for kind, members in by_kind(f for f in faults if f.reveals not in (NOTHING, ROUNDING)).items():
        names = {fault.id for fault in members}
        who = list(dict.fromkeys(catch.case for catch in catches if catch.fault in names))
        words = ", ".join(f"`{name}`" for name in who) if len(who) <= _NAMED else f"{len(who)} cases"
        lines.append(f"| {kind} | {len(members)} | {words or '**none**'} |")
    return "\n".join([*lines, ""])


def detection_page(
    family: str, cases: Sequence[Case], faults: Sequence[Fault], catches: Sequence[Catch]
) -> str:
    """docs/detection.md: every fault, where it shows, how many cases catch it, and how clearly."""
    of_fault = {fault.id: [catch for catch in catches if catch.fault == fault.id] for fault in faults}
    hidden = [fault for fault in faults if fault.reveals in (NOTHING, ROUNDING)]
    shown = [fault for fault in faults if fault not in hidden]
    caught = sum(bool(of_fault[fault.id]) for fault in shown)
    command = _command(family)
    lines = [
        "# Detection",
        "",
        f"Written by `{command}`. {caught} of {len(shown)} faults that some input can reveal are caught;",
        f"{len(hidden)} more are listed at the end, with the reason why no comparison can tell them. Two",
        "effects are shown: the largest error / noise in the case that sees the fault best, and in the one",
        "that sees it worst. Faults planted in engines' own code: see",
        "[detection-engines.md](detection-engines.md).",
        "",
    ]
    for kind, members in by_kind(shown).items():
        lines += [f"## {kind[0].upper()}{kind[1:]}", ""]
        lines += [
            "| fault | what | shows in | cases | best | worst | section |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_row(fault, of_fault[fault.id], len(cases)) for fault in members]
        lines.append("")
    if hidden:
        lines += ["## What no input can reveal", "", "| fault | what | why |", "|---|---|---|"]
        lines += [f"| `{fault.id}` | {fault.what} | {fault.why} |" for fault in hidden]
        lines.append("")
    return "\n".join(lines)


def _row(fault: Fault, catches: Iterable[Catch], cases: int) -> str:
    best: dict[str, float] = {}
    for catch in catches:
        best[catch.case] = max(best.get(catch.case, 0.0), catch.ratio)
    start = f"| `{fault.id}` | {fault.what} | {fault.shows} |"
    if not best:
        return f"{start} **none** | | | {fault.section} |"
    strong, weak = max(best, key=lambda c: best[c]), min(best, key=lambda c: best[c])
    effects = f"`{strong}` {_figure(best[strong])} | `{weak}` {_figure(best[weak])}"
    return f"{start} {len(best)} of {cases} | {effects} | {fault.section} |"


def _figure(ratio: float) -> str:
    return "(no number: no logits, or a probe)" if ratio == float("inf") else f"{ratio:.2g}"
