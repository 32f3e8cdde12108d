"""The window's edge: which keys does a position really see? Measured by changing single earlier tokens."""

from dataclasses import replace

from hypothesis.strategies import SearchStrategy

from conformance.case import Trial, case
from conformance.claims import Claim, Plan, Span, Still, WindowSpan, Witness
from conformance.families.base import GLOBAL, Spec
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
    return feed.width if trial.spec.probes == GLOBAL else trial.spec.window_span


def _reach(trial: Trial) -> int:
    # Beyond a local layer's span nothing can be seen; a global layer sees everything.
    return trial.drawn.width if trial.spec.probes == GLOBAL else trial.spec.window_size + 4


def _plan(trial: Trial, *claims: Claim) -> Plan:
    return Plan(
        claims=claims,
        witnesses=(
            Witness("one layer was probed", trial.spec.probes is not None),
            Witness("tokens beyond the window were changed", trial.drawn.width > trial.spec.window_size + 2),
        ),
    )


def _prefill(trial: Trial) -> Plan:
    window = trial.spec.window_size
    lengths = {"W-1": window - 1, "W": window, "W+1": window + 1, "W+2": window + 2, "2W+3": 2 * window + 3}
    return _plan(
        trial,
        *(
            _probe(f"T = {name}", trial.drawn.first(length), trial, _reach(trial))
            for name, length in lengths.items()
            if length <= trial.drawn.width
        ),
    )


def _decode(trial: Trial) -> Plan:
    starts = {"from 1": 1, "from W+1": trial.spec.window_size + 1}
    return _plan(
        trial,
        *(_probe(name, trial.drawn.token_by_token(n), trial, _reach(trial)) for name, n in starts.items()),
    )


def _rows(spec: Spec) -> SearchStrategy[Feed]:
    return feeds(spec, min_width=2 * spec.window_size + 3, max_width=2 * spec.window_size + 3)


@case(
    "window/local-prefill",
    law="in prefill, a local layer's query sees its release's span of tokens",
    draws=_rows,
    specs={"layers": "local"},
)
def local_prefill(trial: Trial) -> Plan:
    return _prefill(trial)


@case(
    "window/local-decode",
    law="in decode, a local layer's query sees its release's span of tokens",
    needs={"decode"},
    draws=_rows,
    specs={"layers": "local"},
)
def local_decode(trial: Trial) -> Plan:
    return _decode(trial)


@case(
    "window/global-prefill",
    law="in prefill, a global layer's query sees every earlier token",
    draws=_rows,
    specs={"layers": "global"},
)
def global_prefill(trial: Trial) -> Plan:
    return _prefill(trial)


@case(
    "window/global-decode",
    law="in decode, a global layer's query sees every earlier token",
    needs={"decode"},
    draws=_rows,
    specs={"layers": "global"},
)
def global_decode(trial: Trial) -> Plan:
    return _decode(trial)


@case(
    "window/causality",
    law="changing a token moves no earlier position at all",
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=3 * spec.window_size + 4),
)
def causality(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    places = {
        "1": 1,
        "W-1": window - 1,
        "W": window,
        "W+1": window + 1,
        "2W": 2 * window,
        "T-1": feed.width - 1,
    }
    claims = tuple(
        Still(
            f"position {name}",
            feed,
            _other_token(feed, place, trial.spec.vocab_size),
            (Span(0, 0, place),),
        )
        for name, place in places.items()
        if 0 < place < feed.width
    )
    return Plan(
        claims=claims,
        witnesses=(Witness("tokens before and beyond the window were changed", window < feed.width - 1),),
    )
