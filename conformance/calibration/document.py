"""docs/tolerances.md from the study's numbers: tables here, sentences in tolerances.md.jinja."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np

from conformance.calibration.records import ALL_ORDERS, NOISE, Group, Level, Records
from conformance.calibration.subjects import DTYPES
from conformance.calibration.summary import (
    GOAL,
    TAIL_STARTS,
    Row,
    alarms,
    choose,
    in_force,
    inexact_rows,
    inexact_tail,
    reaches,
    rows,
    tail_of,
    unseen,
)
from conformance.faults import ROUNDING, VALUES

__all__ = ["document"]

# A header, then rows.
Table = list[tuple[str, ...]]

_NAMES = {"float32": "FP32", "bfloat16": "BF16"}
_BOUNDS = (2, 3, 4, 6, 8, 16, 32, 64)
_TAIL_BOUNDS = (3, 4, 6, 8)


@dataclass(frozen=True)
class _Stability:
    """By make of noise, the largest ratio of a new relabelling; and how far two noises of a make differ."""

    dtype: str
    worst: Mapping[str, float]
    low: float
    high: float


def document(records: Records) -> str:
    """The page as Markdown."""
    choice = choose(records)
    rounding, drift = in_force()
    graded = [row for dtype in DTYPES for row in rows(records, dtype)]
    medians = [row.spread.quantile(0.5) for row in graded if row.against == "float64"]
    every = [level.fault for dtype in DTYPES for level in reaches(records, dtype)]
    seen = {
        one.fault
        for dtype in DTYPES
        for one in reaches(records, dtype)
        if one.least > rounding or one.reveals == ROUNDING
    }
    return _template().render(
        rounding=f"{rounding:g}",
        drift=f"{drift:g}",
        choice=choice,
        in_force=(rounding, drift) == (choice.rounding, choice.drift),
        positions=f"{sum(row.spread.positions for row in graded):,}",
        models=" and ".join(f"{count} models of {name}" for name, count in records.facts["models"].items()),
        engines=", ".join(
            f"`{name}` on {' and '.join(facts['releases'])}"
            for name, facts in records.facts["engines"].items()
            if facts["releases"]
        ),
        engine_table=_engines(records),
        alarm_table=_alarms(records, rounding),
        tail_table=_tail(records),
        inexact_table=_inexact(records),
        fault_models=records.facts["fault models"],
        fault_table=_faults(records, rounding),
        unseen_table=_unseen(records, rounding),
        conforming_medians=f"{min(medians):.2f} to {max(medians):.2f}",
        hidden=", ".join(f"`{fault}`" for fault in dict.fromkeys(every) if fault not in seen),
        casts=[one for one in reaches(records, "bfloat16") if one.reveals == ROUNDING],
        goal=f"{1 / GOAL:,.0f}",
        bound_table=_bounds(records),
        margin=f"{rounding / choice.highest:.1f}",
        middle=f"{(choice.rounding * choice.lowest) ** 0.5:.0f}",
        make_table=_makes(records),
        stability=_stability(records),
        raised_table=_raised(records),
        luck=max(_new_relabellings(records, dtype)[ALL_ORDERS].worst for dtype in DTYPES),
        casts_alone=_by_make(records, "bfloat16", "reference, orders of casts")["relabellings: 8"].worst,
        blind=len(unseen(records, "float32", _BOUNDS[-1])),
        level_table=_levels(records, rounding),
        version_table=_versions(records),
        host=records.facts["host"],
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": "{:g}".format, "ratio": _ratio, "table": _table}
    return environment.get_template("tolerances.md.jinja")


def _engines(records: Records) -> Table:
    table: Table = [
        ("dtype", "engine", "error from", "positions", "equal", "median", "99 %", "99.9 %", "largest")
    ]
    for dtype in DTYPES:
        for row in sorted(rows(records, dtype), key=lambda row: (row.against, row.engine)):
            equal = row.spread.exact / row.spread.positions
            name = (_NAMES[dtype], row.engine, row.against, f"{row.spread.positions:,}", f"{equal:.0%}")
            table.append((*name, *_quantiles(row)))
    return table


def _quantiles(row: Row) -> tuple[str, ...]:
    """Median, 99 %, 99.9 %, largest; a bin's edge may lie beyond the largest ratio."""
    shares = (row.spread.quantile(share) for share in (0.5, 0.99, 0.999))
    return *(f"{min(ratio, row.worst):.2f}" for ratio in shares), f"{row.worst:.2f}"


def _alarms(records: Records, bound: float) -> Table:
    table: Table = [
        ("dtype", f"beyond {bound:g}", "rate at most, by positions", "by runs", "by models"),
    ]
    for dtype in DTYPES:
        found = alarms(records, dtype, bound)
        positions, runs, models = found.at_most()
        table.append(
            (
                _NAMES[dtype],
                f"{found.positions[0]:,} of {found.positions[1]:,} positions",
                f"{positions:.1e}",
                f"{runs:.1e} ({found.runs[0]} of {found.runs[1]:,})",
                f"{models:.1e} ({found.models[0]} of {found.models[1]})",
            )
        )
    return table


def _tail(records: Records) -> Table:
    tails = {(_NAMES[dtype], n): tail_of(records, dtype, n) for dtype in DTYPES for n in TAIL_STARTS}
    tails |= {("FP32, functions as OpenCL allows", n): inexact_tail(records, n) for n in TAIL_STARTS}
    table: Table = [("of", "from", "beyond it", *(f"> {bound}" for bound in _TAIL_BOUNDS))]
    for (name, _), tail in tails.items():
        chances = (f"{tail.exponential(bound):.0e} … {tail.power(bound):.0e}" for bound in _TAIL_BOUNDS)
        table.append((name, f"{tail.start:.2f}", f"{tail.beyond:,} of {tail.of:,}", *chances))
    return table


def _inexact(records: Records) -> Table:
    table: Table = [("functions off by up to", "positions", "median", "99 %", "99.9 %", "largest")]
    for share, row in sorted(inexact_rows(records).items()):
        what = "what OpenCL allows" if share == 1 else f"{share:g} times that"
        table.append((what, f"{row.spread.positions:,}", *_quantiles(row)))
    return table


def _faults(records: Records, bound: float) -> Table:
    below = f"stay below {bound:g} on some model"
    table: Table = [
        ("dtype", "faults", f"least effect beyond {bound:g}", "of which", "median", below, "on every model")
    ]
    for dtype in DTYPES:
        found = [one for one in reaches(records, dtype) if one.reveals == VALUES]
        least = next(one for one in found if one.least > bound)
        median = float(np.median([one.least for one in found]))
        counts = len(unseen(records, dtype, bound)), sum(one.most <= bound for one in found)
        table.append(
            (
                _NAMES[dtype],
                str(len(found)),
                _ratio(least.least),
                f"`{least.fault}`",
                _ratio(median),
                *(str(count) for count in counts),
            )
        )
    return table


def _unseen(records: Records, bound: float) -> Table:
    table: Table = [("dtype", "fault", "part", "least", "most", "median position, least")]
    for dtype in DTYPES:
        for one in unseen(records, dtype, bound):
            ratios = (_ratio(one.least), _ratio(one.most), _ratio(one.median))
            table.append((_NAMES[dtype], f"`{one.fault}`", one.part, *ratios))
    return table


def _bounds(records: Records) -> Table:
    columns = ("beyond", "chance", "faults below")
    inexact = "FP32, functions as OpenCL allows: chance"
    table: Table = [("bound", *(f"{_NAMES[d]}: {name}" for d in DTYPES for name in columns), inexact)]
    for bound in _BOUNDS:
        cells: list[str] = []
        for dtype in DTYPES:
            chance = max(tail_of(records, dtype, start).power(bound) for start in TAIL_STARTS)
            beyond = alarms(records, dtype, bound).positions[0]
            cells += [f"{beyond:,}", f"{chance:.0e}", str(len(unseen(records, dtype, bound)))]
        chance = max(inexact_tail(records, start).power(bound) for start in TAIL_STARTS)
        table.append((str(bound), *cells, f"{chance:.0e}"))
    return table


def _is_make(group: Group) -> bool:
    """Is it an evaluation judged by a make of noise, not one noise against another?"""
    return group.kind == NOISE and group.engine.startswith("reference")


def _makes(records: Records) -> Table:
    table: Table = [
        ("dtype", "judged", "noise from", "positions", "median", "99 %", "99.9 %", "largest"),
    ]
    for dtype in DTYPES:
        for engine in ("reference, new relabellings", "reference, orders of casts"):
            found = _by_make(records, dtype, engine)
            for make in sorted(found, key=_make_order):
                row = found[make]
                name = f"{make}, as for the cases" if make == ALL_ORDERS else make
                what = (_NAMES[dtype], engine.partition(", ")[2], name, f"{row.spread.positions:,}")
                table.append((*what, *_quantiles(row)))
    return table


def _make_order(make: str) -> tuple[bool, bool, str]:
    """Fewest evaluations first, then the noise of the cases, then neighbours."""
    return make.startswith("largest"), make == ALL_ORDERS, make


def _by_make(records: Records, dtype: str, engine: str) -> dict[str, Row]:
    found = rows(
        records, dtype, lambda group: group.noise, lambda group: _is_make(group) and group.engine == engine
    )
    return {row.engine: row for row in found}


def _new_relabellings(records: Records, dtype: str) -> dict[str, Row]:
    return _by_make(records, dtype, "reference, new relabellings")


def _stability(records: Records) -> list[_Stability]:
    found = []
    for dtype in DTYPES:
        makes = _new_relabellings(records, dtype)
        pair = rows(
            records, dtype, lambda group: group.engine, lambda group: group.engine.startswith("noise of ")
        )[0]
        low, high = (pair.spread.quantile(share) for share in (0.005, 0.995))
        found.append(_Stability(_NAMES[dtype], {name: row.worst for name, row in makes.items()}, low, high))
    return found


def _raised(records: Records) -> Table:
    table: Table = [("dtype", "noise grows, median position", "most")]
    for dtype in DTYPES:
        its = [level for level in records.levels if level.dtype == dtype]
        median = float(np.median([level.raised for level in its]))
        table.append((_NAMES[dtype], f"× {median:.2f}", f"× {max(level.raised_most for level in its):.1f}"))
    return table


def _levels(records: Records, bound: float) -> Table:
    table: Table = [
        (
            "dtype",
            "noise: least",
            "median",
            "largest",
            "largest logit of a position, median",
            f"{bound:g} × median noise",
        )
    ]
    for dtype in DTYPES:
        numbers = _level([level for level in records.levels if level.dtype == dtype], bound)
        table.append((_NAMES[dtype], *(f"{number:.2g}" for number in numbers)))
    return table


def _level(levels: Sequence[Level], bound: float) -> tuple[float, ...]:
    noise = float(np.median([level.noise for level in levels]))
    return (
        min(level.noise_least for level in levels),
        noise,
        max(level.noise_most for level in levels),
        float(np.median([level.logit for level in levels])),
        bound * noise,
    )


def _versions(records: Records) -> Table:
    table: Table = [("engine", "versions", "threads")]
    for name, facts in records.facts["engines"].items():
        versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
        table.append((name, versions, str(facts["numerics"].get("threads", ""))))
    return table


def _table(table: Iterable[Sequence[str]]) -> str:
    header, *body = ("| " + " | ".join(line) + " |" for line in table)
    return "\n".join([header, "|---" * (header.count(" | ") + 1) + "|", *body])


def _ratio(ratio: float) -> str:
    if not np.isfinite(ratio):
        return "no number"
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:,.{digits}f}"
