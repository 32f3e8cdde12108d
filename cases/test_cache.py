"""Cache operations: equal to a fresh run, or refused with an error; silently wrong is the failure."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Claim, MatchesOrRefuses, Plan, Witness
from conformance.families.base import Spec
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset
from conformance.strategies import feeds


def _width(spec: Spec) -> dict[str, int]:
    return {"min_width": 4 * spec.window_size + 4, "max_width": 4 * spec.window_size + 6}


def _crop(feed: Feed, prefill: int, length: int) -> Feed:
    """Prefill, cut back, go on with the rest in one chunk but for the last three tokens."""
    rest = feed.width - prefill
    tail = (Forward(rest - 3), Forward(1), Forward(1), Forward(1))
    return replace(feed, steps=(Forward(prefill), Crop(length), *tail))


@case(
    "cache/crop",
    law="cutting the cache back before anything was dropped, and going on, equals a fresh run",
    needs={"crop", "chunked", "decode"},
    draws=lambda spec: feeds(spec, **_width(spec)),
)
def crop(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    held = window - 1
    claims = (
        MatchesOrRefuses("to 1", _crop(feed, held, 1)),
        MatchesOrRefuses("to 0", _crop(feed, held, 0)),
        MatchesOrRefuses("to its own length", _crop(feed, held, held)),
        MatchesOrRefuses("past the end", _crop(feed, held, held + 5)),
    )
    return Plan(claims, (Witness("the cache held what was cut", held > 1),))


@case(
    "cache/crop-wrapped",
    law="cutting back a cache whose window has moved on equals a fresh run, or is refused",
    needs={"crop", "chunked", "decode"},
    draws=lambda spec: feeds(spec, **_width(spec)),
)
def crop_wrapped(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    prefill = min(2 * window + 2, feed.width - 4)
    claims = (
        MatchesOrRefuses("by one token", _crop(feed, prefill, prefill - 1)),
        MatchesOrRefuses("to W+1", _crop(feed, prefill, window + 1)),
        MatchesOrRefuses("to W-1", _crop(feed, prefill, window - 1)),
        MatchesOrRefuses("to 0", _crop(feed, prefill, 0)),
    )
    return Plan(claims, (Witness("the window had moved on", prefill > trial.spec.window_span),))


@case(
    "cache/reset",
    law="an emptied cache is as good as a new one",
    needs={"reset", "chunked", "decode"},
    draws=lambda spec: feeds(spec, **_width(spec)),
)
def reset(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    claims: list[Claim] = []
    full = min(2 * window + 1, feed.width - 3)
    for name, first in (("before the window is full", window - 1), ("after it moved on", full)):
        rest = feed.width - first
        steps = (Forward(first), Reset(), Forward(rest - 2), Forward(1), Forward(1))
        claims.append(MatchesOrRefuses(name, replace(feed, steps=steps)))
    return Plan(
        tuple(claims), (Witness("the cache was full when it was emptied", full > trial.spec.window_span),)
    )


@case(
    "cache/reorder",
    law="permuted and forked cache rows go on as the rows that they were",
    needs={"reorder", "batch", "decode", "chunked"},
    draws=lambda spec: feeds(spec, **_width(spec), batch=3),
)
def reorder(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    claims: list[Claim] = []
    for name, rows in (("permuted", (2, 0, 1)), ("forked", (1, 1, 0))):
        for place, first in (
            ("before the window is full", window - 1),
            ("after it moved on", 2 * window + 1),
        ):
            rest = feed.width - first
            steps = (Forward(first), Reorder(rows), Forward(rest - 2), Forward(1), Forward(1))
            claims.append(MatchesOrRefuses(f"{name} {place}", replace(feed, steps=steps)))
    return Plan(tuple(claims), (Witness("the rows differed", len(set(feed.tokens)) == feed.batch),))


@case(
    "cache/reorder-padded",
    law="permuted cache rows take their padding with them",
    needs={"reorder", "batch", "left-padding", "decode", "chunked"},
    draws=lambda spec: feeds(spec, **_width(spec), batch=3),
)
def reorder_padded(trial: Trial) -> Plan:
    drawn = trial.drawn
    first = min(trial.spec.window_size + 2, drawn.width)
    lengths = (max(1, drawn.width - 3), drawn.width, max(1, drawn.width - 1))
    rest = tuple(Forward(n) for n in (drawn.width - first - 1, 1) if drawn.width - first >= n > 0)
    feed = replace(drawn, steps=(Forward(first), Reorder((2, 0, 1)), *rest), lengths=lengths, padding="left")
    claims = (MatchesOrRefuses("permuted", feed),)
    return Plan(claims, (Witness("rows of unequal length lay in the cache", len(set(lengths)) > 1),))
