"""What every fault of the bank does to a model, in each dtype. Runs in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from conformance.calibration.ratios import noise_of, ratios_of
from conformance.calibration.records import Effect
from conformance.calibration.subjects import DTYPES, Subject
from conformance.claims import real_cells
from conformance.compare.verdict import unusable
from conformance.errors import Refused
from conformance.families import family_of
from conformance.faults import Fault, faults_of, find
from conformance.feeds import Feed

__all__ = ["effects", "showing"]

# Feeds on which a fault is tried: the first few that it can show on, and the others as long as it moves
# nothing further than engines that conform are off.
TRIED, NOTHING_YET = 3, 3.0


def showing(fault: Fault, subject: Subject, feeds: Mapping[str, Feed]) -> dict[str, Feed]:
    """The feeds on which a fault can show."""
    return {name: feed for name, feed in feeds.items() if fault.applies(subject.spec, feed)}


def effects(subject: Subject, feeds: Mapping[str, Feed], fault_ids: Sequence[str]) -> list[Effect]:
    """For each fault and dtype, its effect on the feed where that is largest; none where it cannot show."""
    adapters = import_module("conformance.backends.reference.faulty")
    truths = _Truths(subject)
    bank = faults_of(subject.spec.family).FAULTS
    found: list[Effect] = []
    for fault in (find(bank, fault_id) for fault_id in fault_ids):
        adapter = adapters.FaultyAdapter({"faults": [fault.id]})
        model = adapter.prepare(subject.checkpoint.path)
        for dtype in DTYPES:
            typed = {name: replace(feed, dtype=dtype) for name, feed in feeds.items()}
            seen: list[Effect] = []
            for name, feed in showing(fault, subject, typed).items():
                if len(seen) >= TRIED and max(effect.ratio for effect in seen) > NOTHING_YET:
                    break
                seen.append(_effect(fault, subject, name, feed, truths, _run(adapter, model, feed)))
            if seen:
                found.append(max(seen, key=lambda effect: effect.ratio))
    return found


def _run(adapter: Any, model: Any, feed: Feed) -> np.ndarray | None:
    try:
        return np.asarray(adapter.run(model, feed))
    except Refused:
        return None


def _effect(
    fault: Fault, subject: Subject, name: str, feed: Feed, truths: _Truths, got: np.ndarray | None
) -> Effect:
    exact, noise = truths.of(feed)
    cells = real_cells(feed)
    ratio = median = float("inf")
    if got is not None and not unusable(got, exact, cells, cells):
        ratios = ratios_of(got, exact, noise)[cells]
        ratio, median = float(ratios.max()), float(np.median(ratios))
    place = (subject.release, subject.number, feed.dtype, name)
    return Effect(fault.id, fault.reveals, fault.part, *place, ratio, median, int(cells.sum()))


class _Truths:
    """Float64 logits and noise of feeds, measured as for the cases and kept."""

    def __init__(self, subject: Subject) -> None:
        adapters = import_module("conformance.backends.reference.adapter")
        self._adapter: Any = adapters.ReferenceAdapter({})
        self._model = self._adapter.prepare(subject.checkpoint.path)
        self._family = family_of(subject.spec.family)
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def of(self, feed: Feed) -> tuple[np.ndarray, np.ndarray]:
        meaning = feed.meaning()
        if meaning.key not in self._known:
            exact = self._adapter.run(self._model, replace(meaning, dtype="float64"))
            orders = ("relabel:0", *self._family.orders[feed.dtype])
            runs = [self._adapter.run_in_order(self._model, meaning, order) for order in orders]
            self._known[meaning.key] = exact, noise_of(exact, runs, feed.dtype)
        return self._known[meaning.key]
