"""What the study keeps: counts of ratios, every large one, the effect of every fault, and the noise itself.

Enough to write docs/tolerances.md again without running anything; CSV, one file a kind.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

__all__ = [
    "ALL_ORDERS",
    "BINS_PER_OCTAVE",
    "CONFORMING",
    "INEXACT",
    "NOISE",
    "OTHER_ORDERS",
    "TAIL",
    "Effect",
    "Group",
    "Large",
    "Level",
    "Records",
    "Sample",
    "Spread",
    "Total",
    "gather",
    "read_records",
    "spread_of",
    "write_records",
]

T = TypeVar("T")
# Ratios of engines that conform are kept one by one beyond this.
TAIL = 2.0
# Width of the bins in which the others are counted: 2.2 %.
BINS_PER_OCTAVE = 32
# What is judged: an engine that conforms, a make of noise, or an evaluation that is less exact on purpose.
CONFORMING, NOISE, INEXACT = "conforming", "noise", "inexact"
# Noises that grade an engine: that of the cases, and the same without the order that is being judged.
ALL_ORDERS, OTHER_ORDERS = "all orders", "other orders"


@dataclass(frozen=True)
class Group:
    """Ratios of one kind.

    Attributes:
        kind: `CONFORMING`, `NOISE` or `INEXACT`.
        engine: whose error it is.
        noise: what it is divided by.
        against: what the error is the distance from: `float64`, or the engine's own run `whole`.
        release: of the models.
        dtype: of the run and the noise.
        feed: name of the feed.
    """

    kind: str
    engine: str
    noise: str
    against: str
    release: str
    dtype: str
    feed: str


@dataclass(frozen=True)
class Sample:
    """The ratios of one run.

    Attributes:
        group: their kind.
        model: number of the model within its release.
        places: int [N, 2], row and position.
        ratios: float64 [N].
    """

    group: Group
    model: int
    places: np.ndarray
    ratios: np.ndarray


@dataclass(frozen=True)
class Spread:
    """Counts of a group's ratios over all models.

    Attributes:
        positions: ratios in all.
        exact: those that are 0.
        bins: bin → count of the others. Bin b holds ratios from 2^(b / 32) up to 2^((b + 1) / 32).
    """

    positions: int
    exact: int
    bins: Mapping[int, int]

    def quantile(self, share: float) -> float:
        """The upper edge of the bin that holds this quantile."""
        wanted = math.ceil(share * self.positions) - self.exact
        if wanted <= 0:
            return 0.0
        for number, count in sorted(self.bins.items()):
            wanted -= count
            if wanted <= 0:
                return float(2 ** ((number + 1) / BINS_PER_OCTAVE))
        return math.inf

    def beyond(self, number: int) -> int:
        """How many ratios lie in bin `number` or above."""
        return sum(count for other, count in self.bins.items() if other >= number)

    def middles(self) -> dict[float, int]:
        """Ratio in the middle of each bin → its count."""
        return {2 ** ((number + 0.5) / BINS_PER_OCTAVE): count for number, count in self.bins.items()}

    def __add__(self, other: Spread) -> Spread:
        bins = dict(self.bins)
        for number, count in other.bins.items():
            bins[number] = bins.get(number, 0) + count
        return Spread(self.positions + other.positions, self.exact + other.exact, bins)


@dataclass(frozen=True)
class Total:
    """One run in a line: how many positions, and the worst of them. `group` counts from 1."""

    group: int
    model: int
    positions: int
    worst: float


@dataclass(frozen=True)
class Large:
    """One ratio beyond `TAIL`, of an engine that conforms."""

    group: int
    model: int
    row: int
    position: int
    ratio: float


@dataclass(frozen=True)
class Effect:
    """What one fault did to one model in one dtype: the feed on which it showed most, of those tried.

    Attributes:
        reveals: what the bank says of it (`conformance.faults.Fault.reveals`).
        part: the part of the model that the fault is in.
        ratio: error / noise of the worst position; infinite where there was no number to compare.
        median: the same of the median position.
        positions: positions compared.
    """

    fault: str
    reveals: str
    part: str
    release: str
    model: int
    dtype: str
    feed: str
    ratio: float
    median: float
    positions: int


@dataclass(frozen=True)
class Level:
    """How large noise and logits of one model are, in one dtype, over the positions of feed `whole`.

    Attributes:
        noise_least, noise, noise_most: the least, median and largest noise of a position.
        logit: median over positions of the largest absolute logit.
        raised, raised_most: median and largest factor by which the noise of a position grows when the
            largest of its neighbours' is taken instead.
    """

    release: str
    model: int
    description: str
    dtype: str
    noise_least: float
    noise: float
    noise_most: float
    logit: float
    raised: float
    raised_most: float


@dataclass(frozen=True)
class Records:
    """The study's numbers. `facts` says what ran: versions, models, the command."""

    facts: Mapping[str, Any]
    groups: Mapping[Group, Spread] = field(default_factory=dict)
    totals: Sequence[Total] = ()
    large: Sequence[Large] = ()
    effects: Sequence[Effect] = ()
    levels: Sequence[Level] = ()

    def numbered(self) -> dict[int, Group]:
        """Groups by the number that `totals` and `large` refer to."""
        return dict(enumerate(self.groups, 1))


def spread_of(ratios: np.ndarray) -> Spread:
    """Count some ratios; those that are not finite do not belong here.

    Raises:
        ValueError: a ratio is not finite, or negative.
    """
    if not np.isfinite(ratios).all() or (ratios < 0).any():
        raise ValueError("ratios = some that are not finite or negative, but should be 0 or more")
    above = ratios[ratios > 0]
    numbers, counts = np.unique(np.floor(np.log2(above) * BINS_PER_OCTAVE).astype(int), return_counts=True)
    return Spread(
        len(ratios), len(ratios) - len(above), dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    )


def gather(
    facts: Mapping[str, Any],
    samples: Iterable[Sample],
    effects: Sequence[Effect],
    levels: Sequence[Level],
) -> Records:
    """Boil samples down to what is kept."""
    groups: dict[Group, Spread] = {}
    numbers: dict[Group, int] = {}
    totals: list[Total] = []
    large: list[Large] = []
    for sample in sorted(samples, key=lambda one: (astuple(one.group), one.model)):
        number = numbers.setdefault(sample.group, len(numbers) + 1)
        known = groups.get(sample.group, Spread(0, 0, {}))
        groups[sample.group] = known + spread_of(sample.ratios)
        totals.append(Total(number, sample.model, len(sample.ratios), _short(sample.ratios.max())))
        # Elsewhere they are many, and nothing is counted one by one.
        beyond = sample.ratios > TAIL if sample.group.kind == CONFORMING else np.zeros(0, bool)
        for index in np.flatnonzero(beyond):
            row, position = (int(n) for n in sample.places[index])
            large.append(Large(number, sample.model, row, position, _short(sample.ratios[index])))
    return Records(facts, groups, totals, large, [_five(e) for e in effects], [_five(e) for e in levels])


def _short(ratio: float) -> float:
    """Five digits, rounded up: what was beyond a bound stays beyond it."""
    if ratio == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(ratio)) - 4)
    return float(f"{math.ceil(ratio / step) * step:.5g}")


def _five(entry: T) -> T:
    """The same with its numbers cut to five digits."""
    numbers = {
        f.name: float(f"{getattr(entry, f.name):.5g}")
        for f in fields(entry)  # type: ignore[arg-type]
        if isinstance(getattr(entry, f.name), float)
    }
    return replace(entry, **numbers)  # type: ignore[type-var]


def write_records(directory: Path, records: Records) -> None:
    """Write the files of `read_records`."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(records.facts, indent=1, sort_keys=True)
    (directory / "study.json").write_text(text + "\n")
    rows = [
        [*astuple(group), spread.positions, spread.exact, _packed(spread.bins)]
        for group, spread in records.groups.items()
    ]
    header = [*(f.name for f in fields(Group)), "positions", "exact", "bins"]
    _write(directory / "groups.csv", header, rows)
    kinds: tuple[tuple[type, Sequence[Any]], ...] = (
        (Total, records.totals),
        (Large, records.large),
        (Effect, records.effects),
        (Level, records.levels),
    )
    for kind, entries in kinds:
        _write(_file(directory, kind), [f.name for f in fields(kind)], [astuple(entry) for entry in entries])


def read_records(directory: Path) -> Records:
    """The study's numbers from its files.

    Raises:
        FileNotFoundError: one is missing.
    """
    groups: dict[Group, Spread] = {}
    for row in _read(directory / "groups.csv"):
        names = {f.name: row[f.name] for f in fields(Group)}
        groups[Group(**names)] = Spread(int(row["positions"]), int(row["exact"]), _unpacked(row["bins"]))
    return Records(
        facts=json.loads((directory / "study.json").read_text()),
        groups=groups,
        totals=_entries(directory, Total),
        large=_entries(directory, Large),
        effects=_entries(directory, Effect),
        levels=_entries(directory, Level),
    )


def _file(directory: Path, kind: type) -> Path:
    return directory / f"{kind.__name__.lower()}.csv"


def _entries(directory: Path, kind: type[T]) -> list[T]:
    types = get_type_hints(kind)
    return [
        kind(**{name: types[name](value) for name, value in row.items()})
        for row in _read(_file(directory, kind))
    ]


def _write(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _packed(bins: Mapping[int, int]) -> str:
    return " ".join(f"{number}:{count}" for number, count in sorted(bins.items()))


def _unpacked(text: str) -> dict[int, int]:
    return {int(number): int(count) for number, _, count in (part.partition(":") for part in text.split())}
