"""What the numbers say: pure functions of the study's records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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
    "reaches",
    "rows",
    "tail_of",
    "unseen",
]

# Where a tail begins: about one ratio in a hundred is beyond.
TAIL_STARTS = (1.5, 2.0)
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
        rounding: the least power of two that no conforming engine is beyond, whose chance of a false alarm
            by the heavier tail is below `GOAL` in every dtype, and that no evaluation is beyond whose
            functions are as inexact as an engine's may be.
        drift: the power of two nearest to the middle, on a log scale, of `rounding` and `lowest`.
        highest: the largest ratio of an engine that conforms.
        inexact: the largest ratio of such an evaluation.
        lowest: the least effect of a fault in float32, of those beyond `rounding` somewhere.
    """

    rounding: float
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


def tail_of(records: Records, dtype: str, start: float = TAIL_STARTS[0]) -> Tail:
    """The tail of all ratios of engines that conform."""
    numbers = dict(_graded(records, dtype))
    of = sum(one.positions for one in records.totals if one.group in numbers)
    return fit_tail([one.ratio for one in records.large if one.group in numbers], start, of)


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
    """Apply the two rules.

    Raises:
        ValueError: no bound keeps the first one.
    """
    dtypes = dict.fromkeys(group.dtype for group in records.groups)
    highest = max(row.worst for dtype in dtypes for row in rows(records, dtype))
    inexact = inexact_rows(records)[1.0].worst
    tails = [tail_of(records, dtype, start) for dtype in dtypes for start in TAIL_STARTS]
    bounds = (2.0**doublings for doublings in range(1, _MOST_DOUBLINGS))
    rounding = next(
        (
            bound
            for bound in bounds
            if bound >= max(highest, inexact) and all(tail.power(bound) < GOAL for tail in tails)
        ),
        None,
    )
    if rounding is None:
        raise ValueError("no bound up to 2^15 promises so few false alarms")
    lowest = min(
        one.least for one in reaches(records, "float32") if one.reveals == VALUES and one.most > rounding
    )
    return Choice(rounding, 2.0 ** round(math.log2(rounding * lowest) / 2), highest, inexact, lowest)


def in_force() -> tuple[float, float]:
    """ROUNDING and DRIFT as the code has them."""
    return ROUNDING, DRIFT
