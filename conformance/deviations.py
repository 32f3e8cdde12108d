"""Known differences: what a backend is known to do otherwise, recorded and held to.

There are two kinds of entries. A prediction names faults of the family's bank: the backend is the
reference plus those faults, in every case, and that is checked (`conformance.predictions`). A refusal
names claims for which the engine gives no logits, and the error that it gives instead.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from conformance.errors import BadInput, did_you_mean
from conformance.families import FAMILIES, family_of
from conformance.families.base import Spec
from conformance.faults import NOTHING, ROUNDING, Fault, clash, faults_of, find
from conformance.feeds import Feed
from conformance.limits import RULES, violation

__all__ = ["Deviation", "Prediction", "Refusal", "read_deviations"]

_COMMON = {"release", "what", "evidence", "date", "versions"}
_PREDICTION = _COMMON | {"faults"}
_REFUSAL = _COMMON | {"case", "claims", "error"}
_OPTIONAL = {"models"}  # of a refusal


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One entry of cases/deviations/<backend>.toml.

    Attributes:
        backend: whose difference it is.
        release: on which release.
        what: the difference, in a sentence.
        evidence: a section of the documentation or a link.
        date: when it was last found to be so.
        versions: (distribution, version specifier): the entry speaks of an engine in which one of these
            distributions is installed in such a version.
        source: file and number of the entry, for messages.
    """

    backend: str
    release: str
    what: str
    evidence: str
    date: datetime.date
    versions: tuple[tuple[str, str], ...]
    source: str

    def outdated(self, installed: Mapping[str, str]) -> str | None:
        """Why the entry does not speak of an engine with these versions, or None where it does."""
        present = {canonicalize_name(name): version for name, version in installed.items()}
        asked = [(canonicalize_name(name), specifier) for name, specifier in self.versions]
        running = [(present[name], specifier) for name, specifier in asked if name in present]
        if any(_within(version, specifier) for version, specifier in running):
            return None
        want = " or ".join(f"{name} {specifier}" for name, specifier in self.versions)
        found = " and ".join(version for version, _ in running)
        return f"{self.source} was written for {want}, but {found or 'none of it'} runs"


@dataclass(frozen=True, kw_only=True)
class Prediction(Deviation):
    """The backend computes what the reference with these faults computes.

    Attributes:
        faults: from the bank of the release's family.
    """

    faults: tuple[Fault, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the faults."""
        return tuple(fault.id for fault in self.faults)

    def applies(self, spec: Spec, feed: Feed) -> bool:
        """Can one of its faults show here?"""
        return any(fault.applies(spec, feed) for fault in self.faults)


@dataclass(frozen=True, kw_only=True)
class Refusal(Deviation):
    """The engine gives no logits for some claims.

    Attributes:
        case: patterns of case ids.
        claims: patterns of claim labels; each must match a claim that fails.
        error: pattern of the problem that it fails with.
        models: (field of the spec, its bounds as (rule, value)): the models that the entry speaks of;
            empty for all.
    """

    case: tuple[str, ...]
    claims: tuple[str, ...]
    error: str
    models: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()

    def covers(self, case_id: str) -> bool:
        """Does the entry speak of this case?"""
        return any(fnmatchcase(case_id, pattern) for pattern in self.case)

    def speaks_of(self, spec: Spec) -> bool:
        """Does the entry speak of this model?"""
        return violation(spec.to_dict(), {name: dict(bounds) for name, bounds in self.models}) is None

    def explains(self, label: str, problem: str) -> tuple[str, ...]:
        """The patterns by which it names this claim, which failed with this problem; none if it does not."""
        if not problem or not fnmatchcase(problem, self.error):
            return ()
        return tuple(pattern for pattern in self.claims if fnmatchcase(label, pattern))


def read_deviations(directory: Path, backends: Iterable[str]) -> list[Deviation]:
    """The entries of some backends, in file order.

    Raises:
        BadInput: a file is not TOML, an entry lacks a key, has one too many or a wrong value, or entries
            that hold at once contradict each other.
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
        own = [_entry(backend, table, f"{file.name} entry {n}") for n, table in enumerate(tables, 1)]
        _require_compatible([entry for entry in own if isinstance(entry, Prediction)])
        entries += own
    return entries


def _entry(backend: str, table: dict[str, Any], source: str) -> Deviation:
    if ("faults" in table) == ("error" in table):
        has = "both" if "faults" in table else "neither"
        raise BadInput(
            f"deviation has {has}, but should have faults (what is computed) or error (nothing is) [{source}]"
        )
    kind, keys = ("prediction", _PREDICTION) if "faults" in table else ("refusal", _REFUSAL)
    for key in sorted(keys - set(table)):
        raise BadInput(f"{key} is missing, but a {kind} needs it [{source}]")
    allowed = keys | (_OPTIONAL if kind == "refusal" else set())
    for key in sorted(set(table) - allowed):
        raise BadInput(f"{key} is not a key of a {kind}: {', '.join(sorted(allowed))} [{source}]")
    for key in ("release", "what", "evidence", "error"):
        if not isinstance(table.get(key, ""), str):
            raise BadInput.value(key, table[key], "a string", source)
    date = table["date"]
    if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
        raise BadInput.value("date", date, "a TOML date such as 2026-01-31", source)
    common: dict[str, Any] = {key: table[key] for key in ("release", "what", "evidence", "date")}
    common |= {"backend": backend, "source": source, "versions": _versions(table["versions"], source)}
    family = _family(table["release"], source)
    if kind == "prediction":
        return Prediction(**common, faults=_faults(table["faults"], family, source))
    case = [table["case"]] if isinstance(table["case"], str) else table["case"]
    return Refusal(
        **common,
        case=_strings("case", case, "a pattern of case ids, or a list of them", source),
        claims=_strings("claims", table["claims"], "a list of claim label patterns", source),
        error=table["error"],
        models=_models(table.get("models", {}), family, source),
    )


def _strings(key: str, value: Any, want: str, source: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise BadInput.value(key, value, want, source)
    return tuple(value)


def _versions(value: Any, source: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not value:
        raise BadInput.value("versions", value, "a table of distribution = version specifier", source)
    for name, specifier in value.items():
        try:
            right = isinstance(specifier, str) and len(SpecifierSet(specifier)) > 0
        except InvalidSpecifier:
            right = False
        if not right:
            want = "a version specifier such as >=0.32,<0.33"
            raise BadInput.value(f"versions.{name}", specifier, want, source)
    return tuple(value.items())


def _models(value: Any, family: str, source: str) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    """Bounds on fields of a family's specs."""
    if not isinstance(value, dict) or not all(isinstance(bounds, dict) for bounds in value.values()):
        raise BadInput.value("models", value, "a table such as {head_dim = {min = 32}}", source)
    (variant, *_), *_ = family_of(family).golden_models.values()
    fields = variant.spec.to_dict()
    for name, bounds in value.items():
        if name not in fields:
            raise BadInput.value("models", name, f"a field of {family}{did_you_mean(name, fields)}", source)
        for rule, bound in bounds.items():
            if rule not in RULES or not isinstance(bound, list if rule == "one_of" else int):
                want = "one_of = [numbers], or a number for min, max or multiple_of"
                raise BadInput.value(f"models.{name}", f"{rule} = {bound}", want, source)
    frozen = {
        name: {rule: tuple(bound) if isinstance(bound, list) else bound for rule, bound in bounds.items()}
        for name, bounds in value.items()
    }
    return tuple((name, tuple(bounds.items())) for name, bounds in frozen.items())


def _within(version: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _family(release: str, source: str) -> str:
    """The family that has a release."""
    known = {known.name: name for name in FAMILIES for known in family_of(name).releases}
    if release not in known:
        raise BadInput.value("release", release, f"one of {', '.join(known)}", source)
    return known[release]


def _faults(value: Any, family: str, source: str) -> tuple[Fault, ...]:
    """The named faults of a family.

    Raises:
        BadInput: one is not in the family's bank, cannot be seen by comparing, or clashes with another.
    """
    ids = _strings("faults", value, f"a list of faults of {family}", source)
    banks = {name: {fault.id for fault in faults_of(name).FAULTS} for name in FAMILIES}
    found: list[Fault] = []
    for fault_id in ids:
        owner = next((name for name in FAMILIES if fault_id in banks[name]), family)
        if fault_id not in banks[family] and owner != family:
            raise BadInput.value("faults", fault_id, f"a fault of {family}: that is one of {owner}", source)
        try:
            fault = find(faults_of(family).FAULTS, fault_id)
        except BadInput as error:
            raise BadInput(f"{error} [{source}]") from None
        if fault.reveals in (NOTHING, ROUNDING):
            raise BadInput.value("faults", fault_id, f"one that shows: {fault.why}", source)
        found.append(fault)
    _require_apart([(fault, source) for fault in found])
    return tuple(found)


def _require_compatible(entries: Sequence[Prediction]) -> None:
    """All predictions of a backend for one release hold at once."""
    for release in dict.fromkeys(entry.release for entry in entries):
        placed = [(fault, e.source) for e in entries if e.release == release for fault in e.faults]
        _require_apart(placed)


def _require_apart(placed: Sequence[tuple[Fault, str]]) -> None:
    for index, (fault, source) in enumerate(placed):
        for earlier, other in placed[:index]:
            where = source if source == other else f"{other} and {source}"
            if fault == earlier:
                raise BadInput(f"faults = {fault.id!r} twice, but once is enough [{where}]")
            knobs = clash(earlier, fault)
            if knobs:
                pair = f"{earlier.id} and {fault.id}"
                raise BadInput(f"faults = {pair}, but both set {', '.join(knobs)} [{where}]")
