"""The page of engines: what each was found to do otherwise than the releases, from the deviation files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from conformance.backends.registry import Backend
from conformance.deviations import Deviation, Prediction, Refusal

__all__ = ["engines_page", "entry_data"]

_COMMAND = "conformance deviations --docs docs"
_STANDIN = "Found on our [stand-in](standins.md); released code, once named, is held to the same."


def entry_data(entry: Deviation) -> dict[str, Any]:
    """An entry as plain data."""
    data: dict[str, Any] = {
        "backend": entry.backend,
        "release": entry.release,
        "what": entry.what,
        "evidence": entry.evidence,
        "date": entry.date.isoformat(),
        "versions": dict(entry.versions),
        "entry": entry.source,
    }
    if isinstance(entry, Prediction):
        faults = [{"id": f.id, "what": f.what, "section": f.section} for f in entry.faults]
        return {**data, "kind": "prediction", "faults": faults}
    assert isinstance(entry, Refusal)
    asked = {"case": list(entry.case), "claims": list(entry.claims), "error": entry.error}
    models = {name: dict(bounds) for name, bounds in entry.models}
    return {**data, "kind": "refusal", **asked, "models": models}


def engines_page(backends: Iterable[Backend], deviations: Sequence[Deviation]) -> str:
    """docs/engines.md: every engine on every release that it claims.

    Args:
        backends: in the order of the page.
        deviations: all entries of theirs.
    """
    lines = [
        "# Engines",
        "",
        f"Written by `{_COMMAND}` from `cases/deviations/`. A *fault* is a named deviation of the bank",
        "([detection.md](detection.md) has all of them). Every run of the cases compares an engine with the",
        "reference plus the faults below, and fails where that does not hold to rounding.",
        "",
    ]
    for backend in backends:
        lines += [f"## {backend.name}: {backend.title}", ""]
        if backend.release_code is not None:
            lines += [_STANDIN, ""]
        for release in backend.releases:
            lines += [f"### Release {release}", ""]
            entries = [e for e in deviations if (e.backend, e.release) == (backend.name, release)]
            for entry in entries:
                lines += [*_lines(entry), ""]
            if not entries:
                lines += ["No difference is recorded.", ""]
    return "\n".join(lines)


def _lines(entry: Deviation) -> Iterator[str]:
    versions = " or ".join(f"`{name}` {specifier}" for name, specifier in entry.versions)
    yield f"**{entry.what[0].upper()}{entry.what[1:]}.**"
    yield f"Found with {versions} on {entry.date}; {entry.evidence}."
    yield ""
    if isinstance(entry, Prediction):
        yield "| fault | what | section |"
        yield "|---|---|---|"
        for fault in entry.faults:
            yield f"| `{fault.id}` | {fault.what} | {fault.section} |"
    elif isinstance(entry, Refusal):
        if entry.models:
            yield f"Of models with {_bounds(entry)}:"
            yield ""
        yield "| no logits in | claims | error |"
        yield "|---|---|---|"
        yield f"| {_codes(entry.case)} | {_codes(entry.claims)} | `{entry.error}` |"


def _bounds(entry: Refusal) -> str:
    """`head_dim` min 32, multiple_of 16 and `window_size` max 8."""
    return " and ".join(
        f"`{name}` " + ", ".join(f"{rule} {bound}" for rule, bound in bounds) for name, bounds in entry.models
    )


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
