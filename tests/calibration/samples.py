"""A small study that never ran: records whose numbers can be counted by hand."""

from __future__ import annotations

import numpy as np

from conformance.calibration.records import (
    ALL_ORDERS,
    CONFORMING,
    INEXACT,
    NOISE,
    OTHER_ORDERS,
    Effect,
    Group,
    Level,
    Records,
    Sample,
    gather,
)
from conformance.calibration.subjects import DTYPES

FACTS = {
    "family": "plamo3",
    "engines": {
        "mine": {"releases": ["2604"], "versions": {"mine": "1.0"}, "numerics": {"threads": 1}},
        "other": {"releases": [], "versions": {}, "numerics": {}},
    },
    "models": {"2604": 2, "4k": 1},
    "fault models": 1,
    "host": {"python": "3.11", "machine": "any", "numpy": "2"},
}


def group(engine: str = "mine", dtype: str = "float32", **changes: str) -> Group:
    fields = {
        "kind": CONFORMING,
        "engine": engine,
        "noise": ALL_ORDERS,
        "against": "float64",
        "release": "2604",
        "dtype": dtype,
        "feed": "whole",
        **changes,
    }
    return Group(**fields)


def sample(of: Group, *ratios: float, model: int = 1) -> Sample:
    places = np.array([(0, place) for place in range(len(ratios))])
    return Sample(of, model, places, np.array(ratios, np.float64))


def effect(
    fault: str, ratio: float, dtype: str = "float32", model: int = 1, reveals: str = "values"
) -> Effect:
    return Effect(fault, reveals, "norm", "2604", model, dtype, "whole", ratio, ratio / 2, 12)


def level(dtype: str) -> Level:
    scale = 1.0 if dtype == "bfloat16" else 2.0**-16
    return Level("2604", 1, "2604: tiny", dtype, scale, 2 * scale, 4 * scale, 40.0, 1.25, 3.0)


def bulk(scale: float = 1.0) -> list[float]:
    """Many ratios with an exponential tail, none beyond 2 at scale 1."""
    return [float(r) for r in scale * (0.25 - 0.2 * np.log((np.arange(2000) + 0.5) / 2000))]


def samples() -> list[Sample]:
    """Few ratios, to be counted by hand."""
    found = []
    for dtype in DTYPES:
        found += [
            sample(group(dtype=dtype), 0.0, 0.5, 1.6, 2.25),
            sample(group(dtype=dtype), 0.5, 0.75, 1.75, 1.0, model=2),
            sample(group(dtype=dtype, against="whole", feed="decode"), 0.0, 0.0, 0.25),
            sample(group("reference, relabel:1", dtype, noise=OTHER_ORDERS, release="4k"), 1.0, 2.1),
            sample(group("reference, relabel:2", dtype, noise=OTHER_ORDERS, release="4k"), 0.75, 1.55),
            sample(group("noise of 4 relabellings", dtype, kind=NOISE, noise="noise of 4 others"), 0.5, 2.0),
        ]
        makes = (*(f"relabellings: {n}" for n in (1, 2, 4, 8)), ALL_ORDERS, "largest of 3 neighbours")
        for place, make in enumerate(makes):
            for engine in ("reference, new relabellings", "reference, orders of casts"):
                found.append(sample(group(engine, dtype, kind=NOISE, noise=make), 0.5, 3.0 - place / 2))
    for share in (1, 2, 4):
        made = group(f"reference, functions off by {share}", kind=INEXACT)
        found.append(sample(made, 0.5 * share, 2.8 * share))
    return found


EFFECTS = [
    effect("loud", 90_000.0),
    effect("loud", 70_000.0, model=2),
    effect("loud", 9.0, "bfloat16"),
    effect("quiet", 900.0),
    effect("quiet", 1.25, "bfloat16"),
    effect("quiet", 40.0, "bfloat16", model=2),
    effect("cast order", 2.0, "bfloat16", reveals="rounding"),
    effect("no number", float("inf"), reveals="not finite"),
]


def many() -> list[Sample]:
    """As many as a tail needs."""
    return [
        *(sample(group("bulk", dtype, release="4k"), *bulk()) for dtype in DTYPES),
        sample(group("reference, functions off by 1", kind=INEXACT), *bulk(1.5)),
    ]


def few() -> Records:
    return gather(FACTS, samples(), EFFECTS, [level(dtype) for dtype in DTYPES])


def records() -> Records:
    return gather(FACTS, [*samples(), *many()], EFFECTS, [level(dtype) for dtype in DTYPES])
