"""Positions: they act through RoPE alone; windows and causality count places in the row."""

from dataclasses import replace
from itertools import pairwise

from conformance.case import Trial, case
from conformance.claims import Agree, Matches, Plan, Span, Witness
from conformance.families.base import Spec
from conformance.feeds import Feed
from conformance.strategies import feeds


def _width(spec: Spec) -> dict[str, int]:
    return {"min_width": 3 * spec.window_size, "max_width": 4 * spec.window_size}


@case(
    "positions/shift",
    law="a constant shift of all positions changes nothing but rounding",
    needs={"positions"},
    draws=lambda spec: feeds(spec, **_width(spec)),
)
def shift(trial: Trial) -> Plan:
    feed = trial.drawn
    shifted = replace(feed, positions=(tuple(range(100, 100 + feed.width)),))
    return Plan(
        claims=(Agree("unshifted", shifted, feed), Matches("reference", shifted)),
        witnesses=(
            Witness(
                "several positions began elsewhere than at 0",
                shifted.positions[0][0] > 0 and feed.width > 1,
            ),
        ),
    )


@case(
    "positions/reset",
    law="positions that restart inside a row are used as given",
    needs={"positions"},
    draws=lambda spec: feeds(spec, **_width(spec)),
)
def reset(trial: Trial) -> Plan:
    feed = trial.drawn
    half = feed.width // 2
    restarted = replace(feed, positions=((*range(half), *range(feed.width - half)),))
    return Plan(
        claims=(Matches("reference", restarted),),
        witnesses=(Witness("positions restarted inside the row", 0 in restarted.positions[0][1:]),),
    )


@case(
    "positions/gaps",
    law="gaps between positions are used as given, and windows still count places",
    needs={"positions"},
    draws=lambda spec: feeds(spec, **_width(spec)),
)
def gaps(trial: Trial) -> Plan:
    feed = trial.drawn
    third = feed.width // 3
    places = range(feed.width)
    jumped = replace(feed, positions=(tuple(p + 17 * (p >= third) + 29 * (p >= 2 * third) for p in places),))
    steps = {after - before for before, after in pairwise(jumped.positions[0])}
    return Plan(
        claims=(Matches("reference", jumped),),
        witnesses=(Witness("positions had gaps", max(steps) > 1),),
    )


def _packed(feed: Feed) -> tuple[Feed, int]:
    """The row as two packed ones, each with its own positions and segment; and where the second begins."""
    cut = feed.width // 2 + 1
    rest = feed.width - cut
    together = replace(feed, positions=((*range(cut), *range(rest)),), segments=((0,) * cut + (1,) * rest,))
    return together, cut


@case(
    "positions/packed",
    law="rows packed into one, with a segment mask, equal the rows alone",
    needs={"positions", "segments"},
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size, max_width=5 * spec.window_size),
)
def packed(trial: Trial) -> Plan:
    feed = trial.drawn
    together, cut = _packed(feed)
    first, second = feed.first(cut), replace(feed.first(feed.width - cut), tokens=(feed.tokens[0][cut:],))
    return Plan(
        claims=(
            Agree("first row alone", together, first, ((Span(0, 0, cut), Span(0, 0, cut)),)),
            Agree(
                "second row alone",
                together,
                second,
                ((Span(0, cut, feed.width), Span(0, 0, feed.width - cut)),),
            ),
            Matches("reference", together),
        ),
        witnesses=(Witness("the second row crossed the window", second.width > trial.spec.window_span),),
    )


@case(
    "positions/packed-cached",
    law="packed rows fed in chunks and one token at a time keep to their segments over the cache",
    needs={"positions", "segments", "chunked", "decode"},
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size, max_width=5 * spec.window_size),
)
def packed_cached(trial: Trial) -> Plan:
    together, cut = _packed(trial.drawn)
    claims = (
        Matches("reference: decode", together.token_by_token(cut + 1)),
        Matches("reference: chunks", together.split([cut - 1, min(3, together.width - cut)])),
    )
    return Plan(claims, (Witness("the second row began before the last chunk", cut < together.width - 1),))
