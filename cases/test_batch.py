"""Batching: what stands beside a row, or pads it, must not matter to it."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Agree, Claim, Matches, Plan, Span, Still, Witness
from conformance.feeds import Feed
from conformance.strategies import feeds


def _alone(feed: Feed) -> list[Claim]:
    """Each row of a batch against the same row alone."""
    claims: list[Claim] = []
    for index, cells in enumerate(feed.real):
        pair = (Span(index, cells.start, cells.stop), Span(0, 0, len(cells)))
        claims.append(Agree(f"row {index} alone", feed, feed.row(index), (pair,)))
    return claims


def _lengths(feed: Feed, window: int) -> tuple[int, ...]:
    """Unequal lengths: one row within the window, one beyond it, one full."""
    return (max(1, window - 1), min(window + 3, feed.width - 1), feed.width)


@case(
    "batch/rows",
    law="rows together equal the same rows alone, and identical rows get identical answers",
    needs={"batch"},
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=4 * spec.window_size, batch=3),
)
def rows(trial: Trial) -> Plan:
    drawn = trial.drawn
    feed = replace(drawn, tokens=(*drawn.tokens, drawn.tokens[0]))
    first, *between, twin = feed.tokens
    other = replace(feed, tokens=(first, *reversed(between), twin))
    twins = (Span(0, 0, feed.width), Span(feed.batch - 1, 0, feed.width))
    return Plan(
        claims=(
            *_alone(feed),
            Agree("identical rows", feed, feed, (twins,)),
            Still("other neighbours", feed, other, twins),
            Matches("reference", feed),
        ),
        witnesses=(
            Witness("several rows were fed together", drawn.batch > 1),
            Witness("neighbours were exchanged", other.tokens != feed.tokens),
        ),
    )


def _padded(trial: Trial, padding: str | None, *, decode: bool) -> Plan:
    drawn = trial.drawn
    lengths = _lengths(drawn, trial.spec.window_size)[-drawn.batch :]
    feed = replace(drawn, lengths=lengths, padding=padding)
    claims = [*_alone(feed), Matches("reference", feed)]
    if decode:
        steps = feed.token_by_token(feed.width - trial.spec.window_size)
        claims += [Agree("decode after padding", steps, feed), Matches("reference: decode", steps)]
    return Plan(
        claims=tuple(claims),
        witnesses=(
            Witness("rows were unequal", len(set(lengths)) > 1),
            Witness(
                "a row longer than the window was short of the others",
                any(trial.spec.window_size < n < feed.width for n in lengths),
            ),
        ),
    )


@case(
    "batch/left-padding",
    law="rows padded on the left equal the rows alone, also when decoded on; padding leaks nothing",
    needs={"batch", "left-padding", "decode"},
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=4 * spec.window_size, batch=3),
)
def left_padding(trial: Trial) -> Plan:
    return _padded(trial, "left", decode=True)


@case(
    "batch/right-padding",
    law="rows padded on the right equal the rows alone; padding leaks nothing and is finite",
    needs={"batch", "right-padding"},
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=4 * spec.window_size, batch=3),
)
def right_padding(trial: Trial) -> Plan:
    return _padded(trial, "right", decode=False)


@case(
    "batch/ragged",
    law="unequal rows fed together without padding equal the rows alone",
    needs={"batch", "ragged"},
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=4 * spec.window_size, batch=3),
)
def ragged(trial: Trial) -> Plan:
    return _padded(trial, None, decode=False)


@case(
    "batch/decode",
    law="rows decoded together equal the same rows alone",
    needs={"batch", "decode"},
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=4 * spec.window_size, batch=3),
)
def decode(trial: Trial) -> Plan:
    window = trial.spec.window_size
    steps = trial.drawn.token_by_token(window)
    return Plan(
        claims=(*_alone(steps), Matches("reference", steps)),
        witnesses=(
            Witness("several rows were decoded together", steps.batch > 1),
            Witness("decode went round a ring of W", steps.width > 2 * window),
        ),
    )


@case(
    "batch/ragged-decode",
    law="rows decoded together equal the same rows alone, also when some of them have ended",
    needs={"batch", "ragged", "decode"},
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=4 * spec.window_size, batch=3),
)
def ragged_decode(trial: Trial) -> Plan:
    drawn, window = trial.drawn, trial.spec.window_size
    lengths = _lengths(drawn, window)[-drawn.batch :]
    prefill = max(1, window - 2)
    steps = replace(drawn, lengths=lengths).token_by_token(prefill)
    return Plan(
        claims=(*_alone(steps), Matches("reference", steps)),
        witnesses=(
            Witness(
                "a row ended while the others were decoded on",
                any(prefill < n < steps.width for n in lengths),
            ),
        ),
    )
