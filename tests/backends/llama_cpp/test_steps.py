"""From feeds to llama.cpp's batches and cache operations. No engine is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.backends.llama_cpp.steps import Clear, Decode, Move, Plan, Remove, Token, plan
from conformance.errors import Unsupported
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset

ROW = Feed(tokens=((3, 1, 4, 1, 5),), steps=(Forward(5),))
ROWS = Feed(tokens=((3, 1, 4), (2, 7, 1), (1, 6, 8)), steps=(Forward(3),))


def batches(made: Plan) -> list[list[tuple[int, int, int]]]:
    """(token, position, sequence) of every token of every batch."""
    return [
        [(token.id, token.position, token.sequence) for token in call.tokens]
        for call in made.calls
        if isinstance(call, Decode)
    ]


def test_a_row_is_a_sequence() -> None:
    made = plan(ROW.split([3]))
    assert made.calls[0] == Decode((Token(0, 0, 3, 0, 0), Token(0, 1, 1, 1, 0), Token(0, 2, 4, 2, 0)))
    assert batches(made)[1] == [(1, 3, 0), (5, 4, 0)]
    assert (made.sequences, made.batch) == (1, 3)


def test_rows_are_fed_together_and_end_where_they_end() -> None:
    made = plan(replace(ROWS, lengths=(1, 3, 2)).split([2]))
    assert batches(made) == [[(3, 0, 0), (2, 0, 1), (7, 1, 1), (1, 0, 2), (6, 1, 2)], [(1, 2, 1)]]
    assert (made.sequences, made.batch) == (3, 5)


def test_positions_are_as_given() -> None:
    assert batches(plan(replace(ROW, positions=((7, 8, 9, 10, 11),)))) == [
        [(3, 7, 0), (1, 8, 0), (4, 9, 0), (1, 10, 0), (5, 11, 0)]
    ]


def test_segments_of_a_row_are_sequences_of_their_own() -> None:
    packed = replace(ROWS, segments=((0, 0, 1),) * 3, positions=((0, 1, 0),) * 3)
    made = plan(packed)
    assert batches(made)[0][:6] == [(3, 0, 0), (1, 1, 0), (4, 0, 1), (2, 0, 2), (7, 1, 2), (1, 0, 3)]
    assert made.sequences == 6


def test_packed_rows_have_no_cache_operations() -> None:
    packed = replace(ROW, segments=((0, 0, 1, 1, 1),), steps=(Forward(4), Crop(2), Forward(1)))
    with pytest.raises(Unsupported, match=r"^does not operate on the cache of packed rows$"):
        plan(packed)


def test_a_cut_removes_what_lies_behind_it_and_positions_go_on_from_there() -> None:
    made = plan(replace(ROW, steps=(Forward(3), Crop(1), Forward(2))))
    assert made.calls[1] == Remove(0, 1)
    assert batches(made)[1] == [(1, 1, 0), (5, 2, 0)]
    shifted = replace(ROW, positions=((7, 8, 9, 8, 9),), steps=(Forward(3), Crop(1), Forward(2)))
    assert plan(shifted).calls[1] == Remove(0, 8)


def test_a_cut_beyond_the_end_asks_for_nothing() -> None:
    made = plan(replace(ROW, steps=(Forward(3), Crop(4), Forward(2))))
    assert [type(call) for call in made.calls] == [Decode, Decode]
    assert batches(made)[1] == [(1, 3, 0), (5, 4, 0)]


def test_an_emptied_cache_counts_from_0() -> None:
    made = plan(replace(ROW, steps=(Forward(3), Reset(), Forward(2))))
    assert made.calls[1] == Clear()
    assert batches(made)[1] == [(1, 0, 0), (5, 1, 0)]


def test_rows_move_to_sequences_that_are_free() -> None:
    steps = (Forward(1), Reorder((1, 1, 0)), Forward(1), Reorder((2, 0, 1)), Forward(1))
    made = plan(replace(ROWS, steps=steps))
    assert made.calls[1] == Move(((1, 3), (1, 4), (0, 5)), (0, 1, 2))
    assert made.calls[3] == Move(((5, 0), (3, 1), (4, 2)), (3, 4, 5))
    assert batches(made)[1:] == [[(1, 1, 3), (7, 1, 4), (6, 1, 5)], [(4, 2, 0), (1, 2, 1), (8, 2, 2)]]
    assert made.sequences == 6


@given(st.data())
@settings(derandomize=True)
def test_a_sequence_never_skips_a_position(data: st.DataObject) -> None:
    lengths = tuple(data.draw(st.integers(1, 3)) for _ in ROWS.tokens)
    feed = replace(ROWS, lengths=lengths).split(data.draw(st.sampled_from([[1, 1, 1], [2, 1], [3]])))
    fed = [token for batch in batches(plan(feed)) for token in batch]
    for sequence, length in enumerate(lengths):
        assert [position for _, position, own in fed if own == sequence] == list(range(length))
