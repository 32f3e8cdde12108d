"""The window's edge: which keys does a position really see? Measured by changing single earlier tokens."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Claim, Plan, Span, Still, WindowSpan, Witness
from conformance.families.base import GLOBAL
from conformance.feeds import Feed
from conformance.strategies import feeds


def _other_token(feed: Feed, position: int, vocabulary: int) -> Feed:
    """The feed with another token at one position of row 0."""
    row = list(feed.tokens[0])
    row[position] = (row[position] + 1) % vocabulary
    return replace(feed, tokens=(tuple(row), *feed.tokens[1:]))


def _probe(label: str, feed: Feed, trial: Trial, reach: int) -> WindowSpan:
    """Change each of the last `reach` tokens in turn and watch the last position."""
    last = feed.width - 1
    changed = tuple(
        _other_token(feed, last - back, trial.spec.vocab_size) for back in range(min(reach, feed.width))
    )
    return WindowSpan(label, feed, changed, expected=min(feed.width, _span(trial, feed)))


def _span(trial: Trial, feed: Feed) -> int:
    return feed.width if trial.spec.layer_kinds == (GLOBAL,) else trial.spec.window_span


def _plan(trial: Trial) -> Plan:
    window = trial.spec.window_size
    whole = trial.drawn
    # Beyond a local layer's span nothing can be seen; a global layer sees everything.
    reach = whole.width if trial.spec.layer_kinds == (GLOBAL,) else window + 4
    claims: list[Claim] = [
        _probe(
            f"prefill, T = W{extra:+d}" if extra else "prefill, T = W",
            whole.first(window + extra),
            trial,
            reach,
        )
        for extra in (-1, 0, 1, 2)
    ]
    claims += [
        _probe("prefill, T = 2W+3", whole, trial, reach),
        _probe("decode from 1", whole.token_by_token(), trial, reach),
        _probe("decode from W+1", whole.token_by_token(window + 1), trial, reach),
    ]
    return Plan(
        claims=tuple(claims),
        witnesses=(
            Witness("one layer was probed", trial.spec.num_hidden_layers == 1),
            Witness("tokens beyond the window were changed", whole.width > window + 2),
        ),
    )


@case(
    "window/local-span",
    law="a local layer's query sees its release's span of tokens, in prefill and in decode",
    needs={"decode"},
    draws=lambda spec: feeds(spec, min_width=2 * spec.window_size + 3, max_width=2 * spec.window_size + 3),
    specs={"layers": "local"},
)
def local_span(trial: Trial) -> Plan:
    return _plan(trial)


@case(
    "window/global-span",
    law="a global layer's query sees every earlier token, in prefill and in decode",
    needs={"decode"},
    draws=lambda spec: feeds(spec, min_width=2 * spec.window_size + 3, max_width=2 * spec.window_size + 3),
    specs={"layers": "global"},
)
def global_span(trial: Trial) -> Plan:
    return _plan(trial)


@case(
    "window/causality",
    law="changing a token moves no earlier position at all",
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=3 * spec.window_size + 4),
)
def causality(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    places = (1, window - 1, window, window + 1, 2 * window, feed.width - 1)
    claims = tuple(
        Still(
            f"position {place}",
            feed,
            _other_token(feed, place, trial.spec.vocab_size),
            (Span(0, 0, place),),
        )
        for place in dict.fromkeys(places)
    )
    return Plan(
        claims=claims,
        witnesses=(Witness("tokens before and beyond the window were changed", window < feed.width - 1),),
    )
