"""Known differences: what a backend is known to do otherwise, recorded and held to.

An entry explains the failing claims that it names, in the cases that it names, and nothing else. An
entry that no longer happens, or that matches nothing, fails the run: known differences do not rot.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.errors import BadInput

__all__ = ["Deviation", "read_deviations"]

_KEYS = {"release", "case", "claims", "what", "evidence"}
_OPTIONAL = {"error"}


@dataclass(frozen=True)
class Deviation:
    """One entry of cases/deviations/<backend>.toml.

    Attributes:
        backend: whose difference it is.
        release: on which release.
        case: patterns of case ids.
        claims: patterns of claim labels; each must match a claim that fails.
        what: the difference, in a sentence.
        evidence: a section of docs/plamo3.md or a link.
        source: file and number of the entry, for messages.
        error: pattern of the problem, for claims that fail because the engine gives no logits; an entry
            without it explains differing logits only.
    """

    backend: str
    release: str
    case: tuple[str, ...]
    claims: tuple[str, ...]
    what: str
    evidence: str
    source: str
    error: str | None = None

    def covers(self, backend: str, release: str, case_id: str) -> bool:
        """Does the entry speak of this cell?"""
        return (
            backend == self.backend
            and release == self.release
            and any(fnmatchcase(case_id, pattern) for pattern in self.case)
        )

    def explains(self, label: str, problem: str) -> bool:
        """Does it name this failing claim, and this problem if the claim fails for want of logits?"""
        if bool(problem) != (self.error is not None) or (self.error and not fnmatchcase(problem, self.error)):
            return False
        return any(fnmatchcase(label, pattern) for pattern in self.claims)


def read_deviations(directory: Path, backends: Iterable[str]) -> list[Deviation]:
    """The entries of some backends, in file order.

    Raises:
        BadInput: a file is not TOML, or an entry lacks a key or has one too many.
    """
    entries: list[Deviation] = []
    for backend in backends:
        file = directory / f"{backend}.toml"
        if not file.is_file():
            continue
        try:
            data = tomllib.loads(file.read_text())
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{file.name} is not TOML: {error} [{file}]") from None
        for key in data:
            if key != "deviation":
                raise BadInput(f"{key} is not a key of a deviation file: deviation [{file}]")
        tables = data.get("deviation", [])
        if not isinstance(tables, list):
            raise BadInput.value("deviation", type(tables).__name__, "an array of tables", str(file))
        for number, entry in enumerate(tables, 1):
            entries.append(_entry(backend, entry, f"{file.name} entry {number}"))
    return entries


def _entry(backend: str, entry: dict[str, Any], source: str) -> Deviation:
    for key in sorted(_KEYS - set(entry)):
        raise BadInput(f"{key} is missing, but a deviation needs it [{source}]")
    for key in sorted(set(entry) - _KEYS - _OPTIONAL):
        raise BadInput(
            f"{key} is not a key of a deviation: {', '.join(sorted(_KEYS | _OPTIONAL))} [{source}]"
        )
    claims = entry["claims"]
    if not isinstance(claims, list) or not claims or not all(isinstance(text, str) for text in claims):
        raise BadInput.value("claims", claims, "a list of claim label patterns", source)
    for key in sorted(set(entry) - {"claims", "case"}):
        if not isinstance(entry[key], str):
            raise BadInput.value(key, entry[key], "a string", source)
    cases = [entry["case"]] if isinstance(entry["case"], str) else entry["case"]
    if not isinstance(cases, list) or not cases or not all(isinstance(text, str) for text in cases):
        raise BadInput.value("case", entry["case"], "a pattern of case ids, or a list of them", source)
    values = {**entry, "case": tuple(cases), "claims": tuple(entry["claims"])}
    return Deviation(backend=backend, source=source, **values)
