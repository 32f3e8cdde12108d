"""Naming: faults planted in the reference, alone and in pairs, and what triage calls them.

This module is about the harness, not about an engine: runs happen in this process, as in `detection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from conformance.detection import LocalRuns, plant
from conformance.families import family_of
from conformance.faults import NOTHING, ROUNDING, Fault, clash, faults_of
from conformance.feeds import CAPABILITIES
from conformance.triage.diagnosis import CONFORMS, diagnose
from conformance.triage.predictions import Faults, Predictions
from conformance.triage.probes import Setting, ladder

__all__ = [
    "EQUAL",
    "RIGHT",
    "UNKNOWN",
    "WRONG",
    "Naming",
    "name_conforming",
    "name_planted",
    "pairs",
    "singles",
]

RIGHT, EQUAL, WRONG, UNKNOWN = "right", "equal", "wrong", "unknown"
# The deviating model takes rectangles only.
_CAPABILITIES = frozenset(CAPABILITIES) - {"ragged"}
_DTYPES = frozenset({"float32", "bfloat16"})


@dataclass(frozen=True)
class Naming:
    """What triage said of one model with some faults.

    Attributes:
        release: on which release.
        planted: its faults.
        named: the set that triage named; empty where it said `conforms` or `unknown`.
        ties: sets that it could not tell from it.
        status: as `Diagnosis.status`.
        probes: probes that were run.
        differing: those that differ from the reference.
    """

    release: str
    planted: Faults
    named: Faults
    ties: tuple[Faults, ...]
    status: str
    probes: int
    differing: int

    @property
    def outcome(self) -> str:
        """`right`; `equal`: another set of faults with the same logits on every probe; `wrong`; `unknown`.

        A set is named only if it leaves rounding alone on every probe, so a set that is not the planted
        one computes the same there; it is `wrong` if the planted one was not even among the ties although
        it is no larger.
        """
        if set(self.named) == set(self.planted):
            return RIGHT
        if not self.named:
            return UNKNOWN
        tied = any(set(tie) == set(self.planted) for tie in self.ties)
        return EQUAL if tied or len(self.named) < len(self.planted) else WRONG


def singles(family: str, checkpoints: Path) -> list[tuple[str, Faults]]:
    """Every fault that can be named, on the first release on which a probe can show it."""
    found: list[tuple[str, Faults]] = []
    nameable = _nameable(family)
    for release in family_of(family).releases:
        known = {faults for _, faults in found}
        probes = ladder(_setting(family, release.name, checkpoints), faults_of(family).FAULTS)
        found += [
            (release.name, (fault.id,))
            for fault in nameable
            if (fault.id,) not in known and any(fault.applies(p.spec, p.feed) for p in probes)
        ]
    return found


def pairs(family: str, checkpoints: Path, count: int, seed: int) -> list[tuple[str, Faults]]:
    """`count` random pairs of faults that one model can have, the releases in turn."""
    draws = np.random.default_rng(seed)
    releases = [release.name for release in family_of(family).releases]
    pools = {release: _shown(family, release, checkpoints) for release in releases}
    found: dict[tuple[str, Faults], None] = {}
    while len(found) < count:
        release = releases[len(found) % len(releases)]
        pool = pools[release]
        one, other = sorted(draws.choice(len(pool), 2, replace=False))
        if not clash(pool[one], pool[other]):
            found[release, (pool[one].id, pool[other].id)] = None
    return list(found)


def name_planted(
    family: str, planted: Sequence[tuple[str, Faults]], checkpoints: Path, processes: int = 1
) -> list[Naming]:
    """Triage of a model with each set of faults, in the order given."""
    job = partial(_name, family, checkpoints)
    if processes == 1 or len(planted) < 2:
        return job(planted)
    # One share is one release's, as far as possible: predictions are shared within it.
    order = sorted(range(len(planted)), key=lambda place: planted[place][0])
    shares = [order[start::processes] for start in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(job, [[planted[place] for place in share] for share in shares]))
    placed = {
        place: naming
        for share, namings in zip(shares, results, strict=True)
        for place, naming in zip(share, namings, strict=True)
    }
    return [placed[place] for place in range(len(planted))]


def name_conforming(family: str, checkpoints: Path, models: int) -> list[Naming]:
    """Triage of a model without faults, over a cache, on `models` different draws of each release."""
    found: list[Naming] = []
    for release in family_of(family).releases:
        runs = _runs()
        plant(runs, ())
        for first in range(models):
            found.append(
                _naming(runs, _setting(family, release.name, checkpoints, first), Predictions(family), ())
            )
    return found


def _name(family: str, checkpoints: Path, planted: Sequence[tuple[str, Faults]]) -> list[Naming]:
    runs, predictions = _runs(), Predictions(family)
    found: list[Naming] = []
    for release, faults in planted:
        plant(runs, faults)
        found.append(_naming(runs, _setting(family, release, checkpoints), predictions, faults))
    return found


def _naming(runs: LocalRuns, setting: Setting, predictions: Predictions, planted: Faults) -> Naming:
    diagnosis = diagnose(runs, "faulty", setting, predictions, measure=False)
    return Naming(
        release=setting.release,
        planted=planted,
        named=diagnosis.named if diagnosis.status != CONFORMS else (),
        ties=diagnosis.ties,
        status=diagnosis.status,
        probes=len(diagnosis.findings),
        differing=sum(finding.bad > 0 for finding in diagnosis.findings),
    )


def _runs() -> LocalRuns:
    return LocalRuns(import_module("conformance.backends.reference.adapter").ReferenceAdapter({}))


def _setting(family: str, release: str, checkpoints: Path, first: int = 0) -> Setting:
    return Setting(family, release, {}, _CAPABILITIES, _DTYPES, checkpoints, first)


def _nameable(family: str) -> list[Fault]:
    return [fault for fault in faults_of(family).FAULTS if fault.reveals not in (NOTHING, ROUNDING)]


def _shown(family: str, release: str, checkpoints: Path) -> list[Fault]:
    probes = ladder(_setting(family, release, checkpoints), faults_of(family).FAULTS)
    return [f for f in _nameable(family) if any(f.applies(p.spec, p.feed) for p in probes)]
