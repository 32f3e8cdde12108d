"""The terminal matrix: cases down, backends and releases across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["console_for", "known_words", "print_matrix", "square_words", "summary"]

_STYLES = {"pass": "green", "known": "yellow", "fail": "bold red", "error": "bold red", "n/a": "dim"}
_NARROWEST = 120


def print_matrix(records: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the matrix, what is known, what is not applicable and why, and one closing sentence."""
    columns = list(dict.fromkeys((r["backend"], r["release"]) for r in records))
    rows = list(dict.fromkeys(r["case"] for r in records))
    cells = {(r["case"], r["backend"], r["release"]): r for r in records}
    table = Table(title="conformance", title_justify="left")
    table.add_column("case", no_wrap=True)
    for backend, release in columns:
        table.add_column(Text(f"{backend}\n{release}"))
    for case in rows:
        table.add_row(Text(case), *(_square(cells.get((case, *column))) for column in columns))
    console.print(table)
    console.print(
        "A number is the largest error / noise; conforming is at most 8. = means equal to the bit.",
        style="dim",
    )
    _spans(records, console)
    _known(records, console)
    _reasons("not applicable", [r for r in records if r["status"] == "n/a"], console)
    console.print(summary(records), markup=False)


def summary(records: Sequence[dict[str, Any]]) -> str:
    """One sentence: how many cells came out how."""
    counts = {status: sum(r["status"] == status for r in records) for status in _STYLES}
    words = {
        "pass": "conform",
        "known": "known differences",
        "fail": "differ",
        "error": "errors",
        "n/a": "not applicable",
    }
    parts = [f"{count} {words[status]}" for status, count in counts.items() if count]
    trials = sum(r["trials"] for r in records)
    claims = sum(r["claims"] for r in records)
    return f"{len(records)} cells: {', '.join(parts)} ({claims} comparisons in {trials} trials)"


def console_for(stream: Any, colour: bool) -> Console:
    """A console that is wide enough for the matrix even where the stream is no terminal."""
    console = Console(file=stream, force_terminal=colour, no_color=not colour, highlight=False)
    console.width = max(console.width, _NARROWEST)
    return console


def square_words(record: dict[str, Any]) -> str:
    """What one square of the matrix says."""
    figure = _figure(record["ratio"])
    match record["status"]:
        case "pass" if record["refused"] == record["claims"]:
            return "refuses"
        case "pass":
            return "=" if record["grade"] == "exact" else figure or "holds"
        case "known":
            return f"known {figure}".rstrip()
        case "fail":
            return f"{record['grade']} {figure}".rstrip()
    return str(record["status"])


def _square(record: dict[str, Any] | None) -> Text:
    return Text("") if record is None else Text(square_words(record), style=_STYLES[record["status"]])


def _spans(records: Sequence[dict[str, Any]], console: Console) -> None:
    """Effective window spans, where they were measured: tokens that the last position really saw."""
    wrong: dict[str, list[str]] = {}
    for record in records:
        place = f"{record['backend']} {record['release']}"
        for label, found in record["measured"].items():
            if label.endswith(": span"):
                wrong.setdefault(place, [])
                off = [f"{s['seen']} instead of {s['expected']}" for s in found if s["seen"] != s["expected"]]
                wrong[place] += [f"{record['case'].partition('/')[2]} {words}" for words in off]
    if wrong:
        console.print("tokens seen by the last position:", style="bold")
    for place, words in wrong.items():
        text = ", ".join(dict.fromkeys(words)) or "as the release says"
        console.print(f"  {place}: {text}", soft_wrap=True, markup=False)


def _figure(ratio: float) -> str:
    if ratio == 0:
        return ""  # the claim was no matter of values: a window span, a published bound
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else f"{ratio:.0e}"


def known_words(entry: dict[str, Any], ratio: float | None) -> str:
    """How an entry's prediction holds: ``as reference + window-one-short, within 2.4 x noise``."""
    if not entry["faults"]:
        return "refused"
    return f"as reference + {' + '.join(entry['faults'])}, within {_figure(ratio or 0.0) or '0'} x noise"


def _known(records: Sequence[dict[str, Any]], console: Console) -> None:
    """What explains known cells, one line for each entry, with the worst residual of its prediction."""
    grouped: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for record in records:
        for entry in record["known"]:
            grouped.setdefault(entry["entry"], []).append((record, entry))
    if grouped:
        console.print("known differences:", style="bold")
    for found in grouped.values():
        (record, entry), *_ = found
        cases = ", ".join(dict.fromkeys(r["case"] for r, _ in found))
        ratios = [e["ratio"] for _, e in found if e["ratio"] is not None]
        how = known_words(entry, max(ratios, default=None))
        place = f"{record['backend']} {record['release']}"
        console.print(f"  {place}: {cases}: {entry['what']} ({how})", soft_wrap=True, markup=False)


def _reasons(title: str, records: Sequence[dict[str, Any]], console: Console) -> None:
    """Why cells came out so, one line for each backend and reason."""
    grouped: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for record in records:
        releases, cases = grouped.setdefault((record["backend"], record["reason"]), ({}, {}))
        releases[record["release"]] = None
        cases[record["case"]] = None
    if grouped:
        console.print(f"{title}:", style="bold")
    for (backend, reason), (releases, cases) in grouped.items():
        place = f"{backend} {' and '.join(releases)}"
        console.print(f"  {place}: {', '.join(cases)}: {reason}", soft_wrap=True, markup=False)
