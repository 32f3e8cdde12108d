from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.errors import BadInput
from conformance.feeds import (
    CAPABILITIES,
    DTYPES,
    Crop,
    Feed,
    Forward,
    Phase,
    Reorder,
    Reset,
    parse_feed,
)

ROW = (5, 6, 7, 8, 9, 10)
ONE = Feed(tokens=(ROW,), steps=(Forward(6),))
TWO = Feed(tokens=(ROW, ROW[::-1]), steps=(Forward(6),))
LEFT = replace(TWO, lengths=(4, 6), padding="left")
RIGHT = replace(TWO, lengths=(4, 6), padding="right")
BUSY = Feed(
    tokens=(ROW, ROW[::-1]),
    steps=(Forward(3), Crop(2), Forward(1), Reorder((1, 1)), Forward(1), Reset(), Forward(1)),
    mode="training-nograd",
    dtype="bfloat16",
    lengths=(6, 5),
    padding="right",
    positions=((0, 1, 2, 3, 4, 5),) * 2,
    segments=((0, 0, 0, 1, 1, 1),) * 2,
)


def message_of(**changed: Any) -> str:
    with pytest.raises(BadInput) as caught:
        replace(TWO, **changed)
    return str(caught.value)


# What a feed may be


@pytest.mark.parametrize("tokens", [(), ((),)])
def test_a_feed_has_a_token(tokens: Any) -> None:
    assert message_of(tokens=tokens) == "tokens = an empty batch, but should be at least one row of one token"


def test_rows_are_equally_long() -> None:
    assert message_of(tokens=(ROW, ROW[:5])) == (
        "tokens = rows of unequal length, but should be a rectangle; give lengths and padding"
    )


def test_the_mode_is_one_of_three() -> None:
    assert message_of(mode="train") == (
        "mode = 'train', but should be evaluation or training or training-nograd"
    )


def test_the_dtype_is_one_of_three() -> None:
    assert message_of(dtype="float16") == "dtype = 'float16', but should be float32 or bfloat16 or float64"


def test_padding_is_on_one_side() -> None:
    assert message_of(padding="both") == "padding = 'both', but should be left, right or null"


@pytest.mark.parametrize("fed", [5, 7])
def test_all_columns_are_fed_once(fed: int) -> None:
    assert message_of(steps=(Forward(1), Crop(0), Forward(fed - 1))) == (
        f"steps = '{fed} columns', but should be 6, the width of tokens"
    )


@pytest.mark.parametrize("lengths", [(6,), (6, 6, 6), (0, 6), (6, 7)])
def test_a_row_has_at_least_one_real_token_and_at_most_all(lengths: Any) -> None:
    assert message_of(lengths=lengths) == f"lengths = {lengths}, but should be 2 numbers from 1 to 6"


@pytest.mark.parametrize("name", ["positions", "segments"])
@pytest.mark.parametrize("grid", [(ROW,), (ROW, ROW[:5]), (ROW, ROW, ROW)])
def test_positions_and_segments_are_given_for_every_token(name: str, grid: Any) -> None:
    assert message_of(**{name: grid}) == f"{name} = 'another shape', but should be [2][6], as tokens"


@pytest.mark.parametrize("columns", [0, -1])
def test_a_forward_step_feeds_something(columns: int) -> None:
    assert message_of(steps=(Forward(columns), Forward(6 - columns))) == (
        f"columns = {columns}, but should be 1 or more"
    )


def test_a_cache_is_not_cut_to_less_than_nothing() -> None:
    assert message_of(steps=(Forward(6), Crop(-1))) == "length = -1, but should be 0 or more"


@pytest.mark.parametrize("rows", [(0,), (0, 1, 0), (0, 2), (-1, 0)])
def test_cache_rows_are_reordered_within_the_batch(rows: Any) -> None:
    assert (
        message_of(steps=(Forward(6), Reorder(rows))) == f"rows = {rows}, but should be 2 numbers from 0 to 1"
    )


# What it says of itself


def test_real_columns_are_those_beside_the_padding() -> None:
    assert TWO.real == (range(6), range(6))
    assert LEFT.real == (range(2, 6), range(6))
    assert RIGHT.real == (range(4), range(6))
    assert replace(RIGHT, padding=None).real == RIGHT.real


@pytest.mark.parametrize(
    ("feed", "needs"),
    [
        (ONE, set()),
        (TWO, {"batch"}),
        (ONE.token_by_token(), {"decode"}),
        (ONE.split([2, 1, 3]), {"decode", "chunked"}),
        (ONE.split([1, 5]), {"chunked"}),
        (LEFT, {"batch", "left-padding"}),
        (RIGHT, {"batch", "right-padding"}),
        (replace(TWO, lengths=(4, 6)), {"batch", "ragged"}),
        (replace(TWO, lengths=(4, 4)), {"batch", "ragged"}),
        (replace(TWO, lengths=(6, 6)), {"batch"}),
        (replace(ONE, mode="training"), {"training"}),
        (replace(ONE, mode="training-nograd"), {"training"}),
        (replace(ONE, positions=(ROW,)), {"positions"}),
        (replace(ONE, segments=(ROW,)), {"segments"}),
        (replace(ONE, steps=(Forward(3), Crop(1), Forward(3))), {"crop", "chunked"}),
        (replace(ONE, steps=(Forward(3), Reset(), Forward(3))), {"reset", "chunked"}),
        (replace(TWO, steps=(Forward(3), Reorder((1, 0)), Forward(3))), {"reorder", "chunked", "batch"}),
    ],
)
def test_a_feed_requires_what_it_uses(feed: Feed, needs: set[str]) -> None:
    assert feed.requires == needs
    assert needs <= set(CAPABILITIES)


def test_a_busy_feed_requires_all_of_it() -> None:
    expected = set(CAPABILITIES) - {"left-padding", "ragged", "chunked"}
    assert BUSY.requires == expected


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        (ONE, "1 row x 6, whole, float32"),
        (ONE.token_by_token(2), "1 row x 6, prefill 2 then one at a time, float32"),
        (TWO.split([1, 3, 2]), "2 rows x 6, split 1-3-2, float32"),
        (LEFT, "2 rows x 6, whole, float32, left padding"),
        (
            BUSY,
            "2 rows x 6, prefill 3 then one at a time, crop, reorder, reset, bfloat16, training-nograd, "
            "right padding, positions, segments",
        ),
    ],
)
def test_a_feed_describes_itself(feed: Feed, words: str) -> None:
    assert feed.describe() == words


def test_the_key_names_the_content() -> None:
    assert ONE.key == Feed(tokens=(ROW,), steps=(Forward(6),)).key
    different = [ONE, TWO, LEFT, RIGHT, BUSY, ONE.split([3]), replace(ONE, dtype="float64")]
    different += [
        replace(ONE, mode="training"),
        replace(ONE, positions=(ROW,)),
        replace(ONE, segments=(ROW,)),
    ]
    assert len({feed.key for feed in different}) == len(different)
    assert len(ONE.key) == 16


# Cutting


def test_chunks_are_cut_from_the_left_and_the_last_takes_the_rest() -> None:
    assert ONE.split([2, 3]).chunks == (2, 3, 1)
    assert ONE.split([2, 4]).chunks == (2, 4)
    assert ONE.split([0, 6, 0]).chunks == (6,)
    assert ONE.split([]).chunks == (6,)
    assert ONE.split([2, 3]).tokens == ONE.tokens


def test_chunks_that_exceed_the_feed_are_refused() -> None:
    with pytest.raises(BadInput) as caught:
        ONE.split([4, 3])
    assert str(caught.value) == "chunks = [4, 3], but should be at most 6 columns in all"


def test_one_token_at_a_time_follows_a_prefill() -> None:
    assert ONE.token_by_token().chunks == (1,) * 6
    assert ONE.token_by_token(4).chunks == (4, 1, 1)
    assert ONE.token_by_token(6).chunks == (6,)


def test_whole_undoes_every_cut() -> None:
    assert ONE.token_by_token().whole() == ONE
    assert ONE.split([1, 5]).whole() == ONE


def test_a_plain_feed_is_shortened_from_the_right() -> None:
    assert TWO.split([2]).first(3) == Feed(tokens=(ROW[:3], ROW[::-1][:3]), steps=(Forward(3),))


@pytest.mark.parametrize("feed", [LEFT, replace(ONE, positions=(ROW,)), replace(ONE, segments=(ROW,))])
def test_other_feeds_are_not_shortened(feed: Feed) -> None:
    with pytest.raises(BadInput) as caught:
        feed.first(3)
    assert str(caught.value) == (
        "feed = one with lengths, positions or segments, but should be plain to be shortened"
    )


def test_a_row_alone_loses_its_padding_and_keeps_its_labels() -> None:
    feed = replace(LEFT, positions=(ROW, ROW), segments=(ROW[::-1], ROW), dtype="bfloat16")
    assert feed.row(0) == Feed(
        tokens=(ROW[2:],),
        steps=(Forward(4),),
        dtype="bfloat16",
        positions=(ROW[2:],),
        segments=(ROW[::-1][2:],),
    )
    assert RIGHT.row(0) == Feed(tokens=(ROW[:4],), steps=(Forward(4),))
    assert LEFT.row(1) == Feed(tokens=(ROW[::-1],), steps=(Forward(6),))


# What it means


def cells(row: int, *columns: int) -> tuple[tuple[int, int], ...]:
    return tuple((row, column) for column in columns)


def test_a_step_sees_what_earlier_steps_left_in_the_cache() -> None:
    assert ONE.split([3, 2]).phases() == (
        Phase((cells(0),), 0, 3),
        Phase((cells(0, 0, 1, 2),), 3, 2),
        Phase((cells(0, 0, 1, 2, 3, 4),), 5, 1),
    )


def test_cutting_emptying_and_reordering_change_what_is_seen() -> None:
    assert BUSY.phases() == (
        Phase((cells(0), cells(1)), 0, 3),
        Phase((cells(0, 0, 1), cells(1, 0, 1)), 3, 1),
        Phase((cells(1, 0, 1, 3), cells(1, 0, 1, 3)), 4, 1),
        Phase((cells(0), cells(1)), 5, 1),
    )


def test_a_fork_keeps_both_histories_and_grows_on_its_own() -> None:
    feed = replace(TWO, steps=(Forward(2), Reorder((1, 1)), Forward(1), Reorder((1, 0)), Forward(3)))
    assert feed.phases()[2].context == (
        ((1, 0), (1, 1), (1, 2)),
        ((1, 0), (1, 1), (0, 2)),
    )


def test_a_cut_past_the_end_keeps_everything() -> None:
    feed = replace(ONE, steps=(Forward(2), Crop(9), Forward(4)))
    assert feed.phases()[1].context == (cells(0, 0, 1),)


def test_every_chunking_of_a_feed_means_the_same() -> None:
    for cut in (ONE.token_by_token(), ONE.split([3, 2]), replace(ONE, mode="training")):
        assert cut.meaning() == ONE


def test_chunks_are_not_merged_over_a_cache_operation() -> None:
    steps = (Forward(1), Forward(2), Crop(2), Forward(1), Forward(1), Forward(1))
    assert replace(ONE, steps=steps).meaning().steps == (Forward(3), Crop(2), Forward(3))


def test_the_meaning_keeps_what_changes_the_logits() -> None:
    meant = BUSY.meaning()
    for name in ("tokens", "dtype", "lengths", "padding", "positions", "segments"):
        assert getattr(meant, name) == getattr(BUSY, name)
    assert meant.mode == "evaluation"


@st.composite
def any_feeds(draw: st.DrawFn) -> Feed:
    batch, width = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    grid = st.lists(
        st.lists(st.integers(0, 9), min_size=width, max_size=width).map(tuple), min_size=batch, max_size=batch
    ).map(tuple)
    operation = st.one_of(
        st.builds(Crop, st.integers(0, 9)),
        st.just(Reset()),
        st.lists(st.integers(0, batch - 1), min_size=batch, max_size=batch).map(
            lambda rows: Reorder(tuple(rows))
        ),
    )
    steps: list[Any] = []
    rest = width
    while rest:
        columns = draw(st.integers(1, rest))
        steps += [Forward(columns), *draw(st.lists(operation, max_size=2))]
        rest -= columns
    lengths = draw(st.none() | st.lists(st.integers(1, width), min_size=batch, max_size=batch).map(tuple))
    return Feed(
        tokens=draw(grid),
        steps=tuple(steps),
        mode=draw(st.sampled_from(["evaluation", "training", "training-nograd"])),
        dtype=draw(st.sampled_from(DTYPES)),
        lengths=lengths,
        padding=None if lengths is None else draw(st.sampled_from(["left", "right", None])),
        positions=draw(st.none() | grid),
        segments=draw(st.none() | grid),
    )


@settings(deadline=None, derandomize=True, database=None)
@given(any_feeds())
def test_every_column_is_computed_once_and_merging_keeps_what_it_sees(feed: Feed) -> None:
    def context_of_columns(phases: tuple[Phase, ...]) -> list[Any]:
        seen = []
        for phase in phases:
            for column in range(phase.columns):
                own = range(phase.start, phase.start + column)
                seen.append([(*context, *cells(row, *own)) for row, context in enumerate(phase.context)])
        return seen

    merged = context_of_columns(feed.meaning().phases())
    assert len(merged) == feed.width
    assert merged == context_of_columns(feed.phases())


# As JSON


@settings(deadline=None, derandomize=True, database=None)
@given(any_feeds())
def test_a_feed_round_trips_through_json(feed: Feed) -> None:
    again = parse_feed(json.loads(json.dumps(feed.to_dict())))
    assert again == feed
    assert again.key == feed.key


def test_a_feed_says_its_steps_by_name() -> None:
    assert BUSY.to_dict()["steps"] == [
        {"op": "forward", "columns": 3},
        {"op": "crop", "length": 2},
        {"op": "forward", "columns": 1},
        {"op": "reorder", "rows": [1, 1]},
        {"op": "forward", "columns": 1},
        {"op": "reset"},
        {"op": "forward", "columns": 1},
    ]


def test_a_feed_needs_tokens_and_steps_alone() -> None:
    assert parse_feed({"tokens": [list(ROW)], "steps": [{"op": "forward", "columns": 6}]}) == ONE


@pytest.mark.parametrize("name", ["tokens", "steps"])
def test_a_missing_key_is_named(name: str) -> None:
    data = {key: value for key, value in ONE.to_dict().items() if key != name}
    with pytest.raises(BadInput) as caught:
        parse_feed(data)
    assert str(caught.value) == f"{name} is missing, but a feed needs it"


@pytest.mark.parametrize(
    "step",
    [{"op": "backward"}, {"op": "forward"}, {"op": "crop", "length": "all"}, {"op": "reorder", "rows": 1}, 3],
)
def test_an_unknown_step_is_refused(step: Any) -> None:
    with pytest.raises(BadInput) as caught:
        parse_feed({**ONE.to_dict(), "steps": [step]})
    assert (
        str(caught.value)
        == f"steps = {step!r}, but should be forward, crop, reset or reorder with its argument"
    )
