"""What a model, or a feed measured by its window, must have for a fault to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.families.base import GLOBAL, LOCAL, Spec
from conformance.faults import Condition, crops
from conformance.feeds import Feed, Phase

__all__ = [
    "AT_SPAN",
    "BEYOND_SPAN",
    "CACHED_AT_SPAN",
    "CACHED_BEYOND_SPAN",
    "CHUNKED_AT_SPAN",
    "CHUNKED_BEYOND_SPAN",
    "CROP_WRAPPED",
    "CROP_WRAPPED_INSIDE",
    "DECODE_AT_SPAN",
    "DECODE_BEYOND_SPAN",
    "FILLING",
    "GLOBAL_BEYOND_SPAN",
    "GLOBAL_LAYERS",
    "LOCAL_LAYERS",
    "POSITIONS_BEYOND_256",
    "PREFILL_AT_SPAN",
    "PREFILL_BEYOND_SPAN",
    "TRAINING_BEYOND_SPAN",
    "TRAINING_ONE_BEYOND_SPAN",
    "not_default",
    "of_spec",
    "several_columns_beyond_span",
]


def of_spec(name: str, words: str, holds: Callable[[Any], bool]) -> Condition:
    """A condition on the model alone: `holds` is given its spec."""
    return Condition(name, words, lambda spec, _: holds(spec))


def not_default(field: str, value: float) -> Condition:
    """The configuration does not have the value that an implementation would assume."""
    return of_spec(
        f"{field} ≠ {value:g}", f"a {field} other than {value:g}", lambda spec: getattr(spec, field) != value
    )


def several_columns_beyond_span(columns: int) -> Condition:
    """A forward step of at least so many columns, in which the window hides something."""
    return _reach(
        f"{columns} columns or more",
        f"a forward step of {columns} columns or more that the window hides something from",
        1,
        lambda phase: phase.columns >= columns,
    )


def _reach(name: str, words: str, beyond: int, which: Callable[[Phase], bool]) -> Condition:
    """A forward step whose last query has at least span + `beyond` tokens up to itself, on local layers."""

    def holds(spec: Spec, feed: Feed) -> bool:
        return LOCAL in spec.layer_kinds and any(
            which(phase) and len(phase.context[0]) + phase.columns >= spec.window_span + beyond
            for phase in feed.phases()
        )

    return Condition(name, words, holds)


def _cached(phase: Phase) -> bool:
    return bool(phase.context[0])


def _decode(phase: Phase) -> bool:
    return _cached(phase) and phase.columns == 1


def _chunk(phase: Phase) -> bool:
    return _cached(phase) and phase.columns > 1


def _prefill(phase: Phase) -> bool:
    return not _decode(phase)


def _any(phase: Phase) -> bool:
    return True


# "At" the span a query sees all that it may; "beyond" it the window hides something.
AT_SPAN = _reach("at the window", "a row as long as the window", 0, _any)
BEYOND_SPAN = _reach("beyond the window", "a row longer than the window", 1, _any)
PREFILL_AT_SPAN = _reach("prefill at the window", "a prefill as long as the window", 0, _prefill)
PREFILL_BEYOND_SPAN = _reach("prefill beyond the window", "a prefill longer than the window", 1, _prefill)
DECODE_AT_SPAN = _reach("decode at the window", "decode of as many tokens as the window", 0, _decode)
DECODE_BEYOND_SPAN = _reach("decode beyond the window", "decode of more tokens than the window", 1, _decode)
CHUNKED_AT_SPAN = _reach("chunked at the window", "a later chunk that fills the window", 0, _chunk)
CHUNKED_BEYOND_SPAN = _reach(
    "chunked beyond the window", "a later chunk that goes beyond the window", 1, _chunk
)
CACHED_AT_SPAN = _reach("cached at the window", "a step on top of a cache that fills the window", 0, _cached)
CACHED_BEYOND_SPAN = _reach(
    "cached beyond the window", "a step on top of a cache beyond the window", 1, _cached
)
FILLING = Condition(
    "cached within the window",
    "a step on top of a cache that has not filled the window yet",
    lambda spec, feed: (
        LOCAL in spec.layer_kinds
        and any(_cached(p) and len(p.context[0]) + p.columns < spec.window_span for p in feed.phases())
    ),
)
CROP_WRAPPED_INSIDE = Condition(
    "crop beyond the window, not to 0",
    "a cut, not to 0, of a cache that held the whole window",
    lambda spec, feed: (
        LOCAL in spec.layer_kinds
        and any(0 < length < held and held >= spec.window_span for length, held in crops(feed))
    ),
)
CROP_WRAPPED = Condition(
    "crop beyond the window",
    "a cut of a cache that held the whole window",
    lambda spec, feed: (
        LOCAL in spec.layer_kinds
        and any(length < held and held >= spec.window_span for length, held in crops(feed))
    ),
)
TRAINING_BEYOND_SPAN = Condition(
    "training beyond the window",
    "training on a row longer than the window",
    lambda spec, feed: feed.mode != "evaluation" and BEYOND_SPAN.holds(spec, feed),
)
TRAINING_ONE_BEYOND_SPAN = Condition(
    "training, one beyond the window",
    "training on a row one token longer than the window",
    lambda spec, feed: (
        feed.mode != "evaluation"
        and LOCAL in spec.layer_kinds
        and any(len(phase.context[0]) + phase.columns == spec.window_span + 1 for phase in feed.phases())
    ),
)
POSITIONS_BEYOND_256 = Condition(
    "positions beyond 256",
    "positions that BF16 rounds",
    lambda _, feed: feed.width > 257 or (feed.positions is not None and max(map(max, feed.positions)) > 256),
)

GLOBAL_BEYOND_SPAN = Condition(
    "global layers beyond the window",
    "global layers, and a row longer than the window",
    lambda spec, feed: (
        GLOBAL in spec.layer_kinds
        and any(len(phase.context[0]) + phase.columns > spec.window_span for phase in feed.phases())
    ),
)
LOCAL_LAYERS = of_spec("local layers", "local layers", lambda spec: LOCAL in spec.layer_kinds)
GLOBAL_LAYERS = of_spec("global layers", "global layers", lambda spec: GLOBAL in spec.layer_kinds)
