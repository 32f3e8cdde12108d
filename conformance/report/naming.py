"""The part of docs/detection.md that says how well triage names what it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.naming import EQUAL, RIGHT, UNKNOWN, WRONG, Naming

__all__ = ["HEADING", "naming_of", "naming_section", "with_naming"]

HEADING = "## Naming"


def with_naming(page: str, section: str) -> str:
    """A page with its last part, the one about naming, replaced or added."""
    return page.partition(f"\n{HEADING}\n")[0].rstrip("\n") + f"\n\n{section}"


def naming_of(page: str) -> str:
    """The last part of a page, the one about naming; empty if there is none."""
    _, found, section = page.partition(f"\n{HEADING}\n")
    return f"{HEADING}\n{section}" if found else ""


def naming_section(
    alone: Sequence[Naming], together: Sequence[Naming], conforming: Sequence[Naming], command: str
) -> str:
    """Counts, and everything that was not named as it was planted.

    Args:
        alone: of models with one fault.
        together: of models with two.
        conforming: of models with none.
        command: what was called.
    """
    probes = sum(naming.probes for naming in conforming)
    given = sum(bool(naming.named) or naming.differing > 0 for naming in conforming)
    lines = [
        HEADING,
        "",
        f"Written by `{command}`.",
        "Each model with planted faults is put to `conformance triage` as if it were an engine; triage does",
        "not know what was planted.",
        "",
        "| planted | models | named right | another set with the same logits | unknown | named wrong |",
        "|---|---:|---:|---:|---:|---:|",
        _row("one fault of the bank", alone),
        _row("two, drawn at random", together),
        "",
        f"Without any fault, over a cache: {len(conforming)} models, {probes:,} probes, {given} names given.",
        "",
        "A set is named only if the reference with it leaves nothing but rounding on every probe. So",
        "another set than the planted one has the same logits there: one fault hides the other, or two",
        "sets are one function on all models that were tried.",
        "",
    ]
    rest = [naming for naming in (*alone, *together) if naming.outcome != RIGHT]
    if rest:
        lines += ["| planted | on | named | or | |", "|---|---|---|---|---|"]
        lines += [_line(naming) for naming in rest]
        lines.append("")
    return "\n".join(lines)


def _row(what: str, namings: Sequence[Naming]) -> str:
    counts = {
        outcome: sum(naming.outcome == outcome for naming in namings)
        for outcome in (RIGHT, EQUAL, UNKNOWN, WRONG)
    }
    judged = len(namings) - counts[EQUAL]
    share = f" ({100 * counts[RIGHT] / judged:.1f} % of those that can be told)" if judged else ""
    cells = [f"{counts[RIGHT]}{share}", *(str(counts[outcome]) for outcome in (EQUAL, UNKNOWN, WRONG))]
    return f"| {what} | {len(namings)} | " + " | ".join(cells) + " |"


def _line(naming: Naming) -> str:
    named = " + ".join(f"`{name}`" for name in naming.named) or "nothing"
    ties = ", ".join(" + ".join(f"`{name}`" for name in tie) for tie in naming.ties)
    planted = " + ".join(f"`{name}`" for name in naming.planted)
    return f"| {planted} | {naming.release} | {named} | {ties} | {naming.outcome} |"
