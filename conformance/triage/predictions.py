"""Predictions: what the reference would compute if it had some faults. Each is computed once.

The reference runs here, in this process or in processes beside it; no engine does.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from conformance.compare.noise import Truth, measure
from conformance.errors import Refused
from conformance.faults import clash, faults_of, leanings
from conformance.feeds import parse_feed
from conformance.triage.probes import Probe

__all__ = ["Faults", "Predictions", "process_pool"]

# Ids of the bank, in bank order.
Faults = tuple[str, ...]
# Evaluations of a faulty reference that its noise is measured on.
_RELABELLINGS = tuple(f"relabel:{number}" for number in range(5))


@dataclass
class Predictions:
    """Predictions for one family, kept by probe and by the faults that can show on it.

    Args:
        family: whose faults.
        pool: processes to compute in; none for this one.
    """

    family: str
    pool: ProcessPoolExecutor | None = None
    _exact: dict[tuple[str, str, Faults], np.ndarray | None] = field(default_factory=dict)
    _truths: dict[tuple[str, str, Faults], Truth | None] = field(default_factory=dict)

    def visible(self, probe: Probe, faults: Faults) -> Faults:
        """Those of some faults that can show on a probe: the others certainly change nothing."""
        return tuple(name for name in faults if self._find(name).applies(probe.spec, probe.feed))

    def compatible(self, faults: Faults) -> bool:
        """Can one model have them all?"""
        found = [self._find(name) for name in faults]
        return not any(clash(one, other) for place, one in enumerate(found) for other in found[:place])

    def exact(
        self, probe: Probe, sets: Iterable[Faults], *, together: bool = False
    ) -> dict[Faults, np.ndarray | None]:
        """Float64 logits with each set of faults, or None where such a model refuses the feed.

        Args:
            probe: what to run.
            sets: of faults.
            together: with all faults of a set, also those that cannot show by themselves: beside a fault
                that, say, keeps what a cut should drop, they may.
        """
        shown = {faults: faults if together else self.visible(probe, faults) for faults in sets}
        keys = {seen: (probe.checkpoint.identity, probe.feed.key, seen) for seen in shown.values()}
        missing = [seen for seen, key in keys.items() if key not in self._exact]
        job = (str(probe.checkpoint.path), replace(probe.feed, dtype="float64").to_dict())
        for seen, logits in zip(missing, self._computed(job, missing), strict=True):
            self._exact[keys[seen]] = logits
        return {faults: self._exact[keys[seen]] for faults, seen in shown.items()}

    def truth(self, probe: Probe, faults: Faults, *, together: bool = False) -> Truth | None:
        """As `exact` for one set, with the noise of such a model, measured on its own evaluations."""
        seen = faults if together else self.visible(probe, faults)
        key = (probe.checkpoint.identity, probe.feed.key, seen)
        if key not in self._truths:
            exact = self.exact(probe, [faults], together=together)[faults]
            self._truths[key] = None
            if exact is not None:
                path, feed = str(probe.checkpoint.path), probe.feed.to_dict()
                orders = (*_RELABELLINGS, *leanings(self.family, seen, probe.feed.dtype))
                runs = [_evaluate(path, feed, seen, order) for order in orders]
                usable = [run for run in runs if run is not None and run.shape == exact.shape]
                self._truths[key] = measure(exact, usable, probe.feed.dtype) if usable else None
        return self._truths[key]

    def _computed(
        self, job: tuple[str, Mapping[str, Any]], sets: Sequence[Faults]
    ) -> list[np.ndarray | None]:
        path, feed = job
        if self.pool is None or len(sets) < 4:
            return [_evaluate(path, feed, faults) for faults in sets]
        size = max(1, len(sets) // 8)
        shares = [sets[start : start + size] for start in range(0, len(sets), size)]
        asked = [self.pool.submit(_evaluate_all, path, feed, share) for share in shares]
        return [logits for share in asked for logits in share.result()]

    def _find(self, name: str) -> Any:
        return _bank(self.family)[name]


def process_pool(processes: int) -> ProcessPoolExecutor:
    """Processes for predictions, started now: they import PyTorch while an engine starts."""
    # Spawned, not forked: the caller has threads.
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    for _ in range(processes):
        pool.submit(_adapter, ())
    return pool


@cache
def _bank(family: str) -> dict[str, Any]:
    return {fault.id: fault for fault in faults_of(family).FAULTS}


@cache
def _model(checkpoint: str) -> Any:
    return _adapter(()).prepare(Path(checkpoint))


@cache
def _adapter(faults: Faults) -> Any:
    return import_module("conformance.backends.reference.faulty").FaultyAdapter({"faults": list(faults)})


def _evaluate_all(
    checkpoint: str, feed: Mapping[str, Any], sets: Sequence[Faults]
) -> list[np.ndarray | None]:
    return [_evaluate(checkpoint, feed, faults) for faults in sets]


def _evaluate(
    checkpoint: str, feed: Mapping[str, Any], faults: Faults, order: str = _RELABELLINGS[0]
) -> np.ndarray | None:
    try:
        return np.asarray(_adapter(faults).run_in_order(_model(checkpoint), parse_feed(feed), order))
    except Refused:
        return None
