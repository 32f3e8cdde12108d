"""What the numbers say: pure functions of the study's records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from conformance.calibration.records import CONFORMING, INEXACT, Group, Records, Spread
from conformance.calibration.statistics import Tail, clopper_pearson, fit_tail
from conformance.compare.verdict import DRIFT, ROUNDING
from conformance.faults import VALUES

__all__ = [
    "Alarms",
    "Choice",
    "Reach",
    "Row",
    "alarms",
    "choose",
    "engine_of",
    "in_force",
    "inexact_rows",
    "inexact_tail",
    "reaches",
    "rows",
    "tail_of",
    "unseen",
]

# Where a tail begins: the ratio that one position in so many is beyond.
TAIL_STARTS = (100, 1000)
# What a bound should promise: at most one false alarm in a million positions, by the heavier tail.
GOAL = 1e-6
_MOST_DOUBLINGS = 16


@dataclass(frozen=True)
class Row:
    """Ratios of one engine: how many, some quantiles, the largest."""

    engine: str
    against: str
    spread: Spread
    worst: float


@dataclass(frozen=True)
class Alarms:
    """Verdicts worse than a bound among engines that conform: by position, by run, by model.

    Each is (events, trials). Positions of a run share a model and a text, and runs share a model, so the
    interval of the positions is the narrowest and supposes the most.
    """

    positions: tuple[int, int]
    runs: tuple[int, int]
    models: tuple[int, int]

    def at_most(self, confidence: float = 0.95) -> tuple[float, float, float]:
        """Upper ends of the Clopper-Pearson intervals of the three rates."""
        pairs = (self.positions, self.runs, self.models)
        one, two, three = (clopper_pearson(events, trials, confidence)[1] for events, trials in pairs)
        return one, two, three


@dataclass(frozen=True)
class Reach:
    """One fault in one dtype, over the models that it was tried on.

    Attributes:
        least: the model on which it shows least: its worst position's ratio there.
        most: the same of the model on which it shows most.
        median: the least ratio of a median position, over the models.
    """

    fault: str
    reveals: str
    part: str
    dtype: str
    models: int
    least: float
    most: float
    median: float


@dataclass(frozen=True)
class Choice:
    """What the rules make of the data.

    Attributes:
        rounding: the least power of two that nothing which may pass is beyond, and at which its chance of a
            false alarm, by the heavier tail, is below `GOAL`: neither engines that conform, in any dtype, nor
            evaluations whose functions are as inexact as an engine's may be.
        measured: the same of the engines alone.
        drift: the power of two nearest to the middle, on a log scale, of `rounding` and `lowest`.
        highest: the largest ratio of an engine that conforms.
        inexact: the largest ratio of an inexact evaluation.
        lowest: the least effect of a fault in float32, of those beyond `rounding` somewhere.
    """

    rounding: float
    measured: float
    drift: float
    highest: float
    inexact: float
    lowest: float


def engine_of(group: Group) -> str:
    """The engine, all orders of the reference in one."""
    return group.engine.partition(",")[0]


def _graded(records: Records, dtype: str) -> Iterator[tuple[int, Group]]:
    for number, group in records.numbered().items():
        if group.kind == CONFORMING and group.dtype == dtype:
            yield number, group


def rows(
    records: Records,
    dtype: str,
    name: Callable[[Group], str] = engine_of,
    kept: Callable[[Group], bool] = lambda group: group.kind == CONFORMING,
) -> list[Row]:
    """Ratios by engine and by what they are the distance from, in the order of the records.

    Args:
        records: the study's.
        dtype: of the runs.
        name: what to call the engine of a group; groups of one name are added.
        kept: which groups to count.
    """
    spreads: dict[tuple[str, str], Spread] = {}
    worst: dict[tuple[str, str], float] = {}
    largest: dict[int, float] = {}
    for total in records.totals:
        largest[total.group] = max(total.worst, largest.get(total.group, 0.0))
    for number, group in records.numbered().items():
        if group.dtype == dtype and kept(group):
            key = (name(group), group.against)
            spreads[key] = spreads.get(key, Spread(0, 0, {})) + records.groups[group]
            worst[key] = max(largest[number], worst.get(key, 0.0))
    return [Row(*key, spread, worst[key]) for key, spread in spreads.items()]


def inexact_rows(records: Records) -> dict[float, Row]:
    """Share of what engines' functions are allowed to be off → ratios of such evaluations in float32."""
    found = rows(records, "float32", lambda group: group.engine, lambda group: group.kind == INEXACT)
    return {float(row.engine.rpartition(" ")[2]): row for row in found}


def alarms(records: Records, dtype: str, bound: float) -> Alarms:
    """How often engines that conform are beyond a bound; not below `records.TAIL`."""
    numbers = dict(_graded(records, dtype))
    beyond = [one for one in records.large if one.group in numbers and one.ratio > bound]
    totals = [one for one in records.totals if one.group in numbers]
    models = {(numbers[one.group].release, one.model) for one in totals}
    return Alarms(
        positions=(len(beyond), sum(one.positions for one in totals)),
        runs=(len({(one.group, one.model) for one in beyond}), len(totals)),
        models=(len({(numbers[one.group].release, one.model) for one in beyond}), len(models)),
    )


def tail_of(records: Records, dtype: str, start: int = TAIL_STARTS[0]) -> Tail:
    """The tail of all ratios of engines that conform, from the one that one in `start` is beyond."""
    return _tail(sum((row.spread for row in rows(records, dtype)), Spread(0, 0, {})), start)


def inexact_tail(records: Records, start: int = TAIL_STARTS[0]) -> Tail:
    """The same of evaluations whose functions are as inexact as an engine's may be; float32."""
    return _tail(inexact_rows(records)[1.0].spread, start)


def _tail(spread: Spread, start: int) -> Tail:
    return fit_tail(spread.middles(), spread.quantile(1 - 1 / start), spread.positions)


def reaches(records: Records, dtype: str) -> list[Reach]:
    """Every fault that can show in a dtype, those that show least first."""
    found = []
    for fault in dict.fromkeys(effect.fault for effect in records.effects):
        its = [effect for effect in records.effects if (effect.fault, effect.dtype) == (fault, dtype)]
        if its:
            ratios = [effect.ratio for effect in its]
            median = min(effect.median for effect in its)
            first = its[0]
            of = (first.reveals, first.part, dtype, len(its))
            found.append(Reach(fault, *of, min(ratios), max(ratios), median))
    return sorted(found, key=lambda reach: (reach.least, reach.fault))


def unseen(records: Records, dtype: str, bound: float) -> list[Reach]:
    """Faults that compute another function, and that stay within a bound on some model they were tried on."""
    return [one for one in reaches(records, dtype) if one.reveals == VALUES and one.least <= bound]


def choose(records: Records) -> Choice:
    """Apply the rules.

    Raises:
        ValueError: no bound keeps the first one.
    """
    dtypes = dict.fromkeys(group.dtype for group in records.groups)
    highest = max(row.worst for dtype in dtypes for row in rows(records, dtype))
    tails = [tail_of(records, dtype, start) for dtype in dtypes for start in TAIL_STARTS]
    measured = _least_bound(highest, tails)
    inexact = inexact_rows(records)[1.0].worst
    rounding = max(measured, _least_bound(inexact, [inexact_tail(records, n) for n in TAIL_STARTS]))
    lowest = min(
        one.least for one in reaches(records, "float32") if one.reveals == VALUES and one.most > rounding
    )
    drift = 2.0 ** round(math.log2(rounding * lowest) / 2)
    return Choice(rounding, measured, drift, highest, inexact, lowest)


def _least_bound(worst: float, tails: Sequence[Tail]) -> float:
    for doublings in range(1, _MOST_DOUBLINGS):
        bound = 2.0**doublings
        if bound >= worst and all(tail.power(bound) < GOAL for tail in tails):
            return bound
    raise ValueError(f"no bound up to 2^{_MOST_DOUBLINGS - 1} promises so few false alarms")


def in_force() -> tuple[float, float]:
    """ROUNDING and DRIFT as the code has them."""
    return ROUNDING, DRIFT
