"""The reference on one model: truth and noise of every feed, and what correct evaluations are apart.

Runs in a process of its own, as the reference's worker does; torch is imported there only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from conformance.calibration.ratios import leave_one_out, noise_of, of_neighbours, ratios_of
from conformance.calibration.records import (
    ALL_ORDERS,
    CONFORMING,
    INEXACT,
    NOISE,
    OTHER_ORDERS,
    Group,
    Level,
    Sample,
)
from conformance.calibration.subjects import DTYPES, Subject
from conformance.claims import real_cells
from conformance.families import family_of
from conformance.feeds import Feed

__all__ = ["Findings", "Judged", "evaluate", "sample"]

OWN = "relabel:0"
# Relabellings that no noise of the cases contains: to build other noises from, and to judge by them.
TRIED = tuple(f"relabel:{n}" for n in range(11, 19))
NEW = tuple(f"relabel:{n}" for n in range(101, 105))
COUNTS = (1, 2, 4, 8)
SHARES = (1.0, 2.0, 4.0)
SEEDS = (1, 2, 3)
HALF = len(TRIED) // 2


@dataclass(frozen=True)
class Judged:
    """What a feed is judged by: float64 logits [B, T, V], and the noise [B, T]."""

    exact: np.ndarray
    noise: np.ndarray


@dataclass(frozen=True)
class Findings:
    """What the reference says of one model.

    Attributes:
        judged: (dtype, name of a feed) → its truth and noise.
        samples: ratios of the reference's own orders, of its run over a cache, of noises tried, and of less
            exact evaluations.
        levels: how large noise and logits are, by dtype.
    """

    judged: Mapping[tuple[str, str], Judged]
    samples: tuple[Sample, ...]
    levels: tuple[Level, ...]


def sample(group: Group, model: int, feed: Feed, ratios: np.ndarray) -> Sample:
    """The ratios [B, T] of a feed's real positions."""
    cells = real_cells(feed)
    return Sample(group, model, np.argwhere(cells), ratios[cells])


def evaluate(subject: Subject, feeds: Mapping[str, Feed]) -> Findings:
    """Run the reference in float64, in every order of every dtype, over a cache, and less exactly.

    Args:
        subject: the model.
        feeds: float32 feeds by name, one called `whole` among them.
    """
    reference, cached = _Runs(subject, "adapter:ReferenceAdapter"), _Runs(subject, "faulty:FaultyAdapter")
    judged: dict[tuple[str, str], Judged] = {}
    samples: list[Sample] = []
    levels: list[Level] = []
    exact = {
        name: reference.run(replace(feed.meaning(), dtype="float64"), OWN) for name, feed in feeds.items()
    }
    for dtype in DTYPES:
        orders = (OWN, *family_of(subject.spec.family).orders[dtype])
        for name, given in feeds.items():
            feed = replace(given, dtype=dtype)
            meaning = feed.meaning()
            runs = [reference.run(meaning, order) for order in orders]
            judged[dtype, name] = Judged(exact[name], noise_of(exact[name], runs, dtype))
            note = partial(_sample, subject, feed, name)
            if feed == meaning:
                left_out = leave_one_out(exact[name], runs, dtype)
                samples += [
                    note(CONFORMING, f"reference, {order}", OTHER_ORDERS, ratios)
                    for order, ratios in zip(orders, left_out, strict=True)
                ]
            if "ragged" not in feed.requires:
                # Its order is the reference's own wherever the cache leaves it so: judged without that.
                others = noise_of(exact[name], runs[1:], dtype)
                ratios = ratios_of(cached.run(feed, OWN), exact[name], others)
                samples.append(note(CONFORMING, "reference over a cache", OTHER_ORDERS, ratios))
        whole = replace(feeds["whole"], dtype=dtype)
        note = partial(_sample, subject, whole, "whole")
        samples += _noises(note, reference, whole, orders, judged[dtype, "whole"])
        samples += _inexact(note, reference, whole, judged[dtype, "whole"]) if dtype == "float32" else []
        levels.append(_level(subject, dtype, judged[dtype, "whole"]))
    return Findings(judged, tuple(samples), tuple(levels))


class _Runs:
    """One adapter of the reference with one model; equal questions share one answer."""

    def __init__(self, subject: Subject, place: str) -> None:
        module, _, name = place.partition(":")
        self._adapter: Any = getattr(import_module(f"conformance.backends.reference.{module}"), name)({})
        self._model = self._adapter.prepare(subject.checkpoint.path)
        self._known: dict[tuple[str, str], np.ndarray] = {}

    def run(self, feed: Feed, order: str) -> np.ndarray:
        key = (feed.key, order)
        if key not in self._known:
            self._known[key] = self._adapter.run_in_order(self._model, feed, order)
        return self._known[key]

    def run_inexactly(self, feed: Feed, share: float, seed: int) -> np.ndarray:
        inexact: Any = import_module("conformance.calibration.inexact")
        with inexact.Inexact(share, seed):
            return np.asarray(self._adapter.run_in_order(self._model, feed, OWN))


def _noises(
    note: Callable[..., Sample], reference: _Runs, feed: Feed, orders: Sequence[str], by: Judged
) -> list[Sample]:
    """Orders that a noise does not contain, judged by noises of several makes; then noise against noise."""
    exact = by.exact
    tried = [reference.run(feed, order) for order in TRIED]
    relabellings = {f"relabellings: {n}": noise_of(exact, tried[:n], feed.dtype) for n in COUNTS}
    neighbours = {
        f"largest of {2 * reach + 1} neighbours": of_neighbours(by.noise, reach) for reach in (1, 2)
    }
    casts = [order for order in orders if not order.startswith("relabel")]
    # The noise of the cases contains the orders of casts, so it cannot be asked about them.
    subjects = (
        ("reference, new relabellings", NEW, {**relabellings, ALL_ORDERS: by.noise, **neighbours}),
        ("reference, orders of casts", casts, relabellings),
    )
    samples = [
        note(NOISE, engine, make, ratios_of(reference.run(feed, order), exact, noise))
        for engine, judged, makes in subjects
        for make, noise in makes.items()
        for order in judged
    ]
    one, other = (noise_of(exact, half, feed.dtype) for half in (tried[:HALF], tried[HALF:]))
    samples.append(note(NOISE, f"noise of {HALF} relabellings", f"noise of {HALF} others", one / other))
    return samples


def _inexact(note: Callable[..., Sample], reference: _Runs, feed: Feed, by: Judged) -> list[Sample]:
    """Evaluations whose elementary functions are off by as much as engines are allowed, and by more."""
    return [
        note(
            INEXACT,
            f"reference, functions off by {share:g}",
            ALL_ORDERS,
            ratios_of(reference.run_inexactly(feed, share, seed), by.exact, by.noise),
        )
        for share in SHARES
        for seed in SEEDS
    ]


def _sample(
    subject: Subject, feed: Feed, name: str, kind: str, engine: str, noise: str, ratios: np.ndarray
) -> Sample:
    group = Group(kind, engine, noise, "float64", subject.release, feed.dtype, name)
    return sample(group, subject.number, feed, ratios)


def _level(subject: Subject, dtype: str, by: Judged) -> Level:
    raised = of_neighbours(by.noise, 1) / by.noise
    return Level(
        release=subject.release,
        model=subject.number,
        description=subject.spec.describe(),
        dtype=dtype,
        noise_least=float(by.noise.min()),
        noise=float(np.median(by.noise)),
        noise_most=float(by.noise.max()),
        logit=float(np.median(np.abs(by.exact).max(axis=-1))),
        raised=float(np.median(raised)),
        raised_most=float(raised.max()),
    )
