"""From feeds to engine steps: prompts, decoded tokens, chunks. No engine is needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.backends.vllm.steps import Plan, Row, plan
from conformance.feeds import Feed, Forward

ROW = Feed(tokens=((3, 1, 4, 1, 5, 9),), steps=(Forward(6),))
ROWS = Feed(
    tokens=((3, 1, 4, 1, 5, 9), (2, 7, 1, 8, 2, 8), (1, 6, 1, 8, 0, 3)),
    steps=(Forward(6),),
    lengths=(2, 6, 4),
)


def test_a_whole_row_is_a_prompt() -> None:
    assert plan(ROW) == Plan((Row((3, 1, 4, 1, 5, 9), ()),), (6,))


def test_single_columns_at_the_end_are_decoded() -> None:
    assert plan(ROW.token_by_token(4)) == Plan((Row((3, 1, 4, 1), (5, 9)),), (4, 1, 1))


def test_a_row_one_at_a_time_has_a_prompt_of_one_token() -> None:
    assert plan(ROW.token_by_token()) == Plan((Row((3,), (1, 4, 1, 5, 9)),), (1,) * 6)


def test_chunks_before_them_are_chunks_of_the_prompt_also_single_ones() -> None:
    """A request cannot go back from decoding to its prompt."""
    assert plan(ROW.split([2, 1, 2, 1])) == Plan((Row((3, 1, 4, 1, 5), (9,)),), (2, 1, 2, 1))
    assert plan(ROW.split([1, 3, 2])) == Plan((Row((3, 1, 4, 1, 5, 9), ()),), (1, 3, 2))


def test_rows_of_unequal_length_end_where_they_end() -> None:
    whole = plan(ROWS)
    assert whole.rows == (Row((3, 1), ()), Row((2, 7, 1, 8, 2, 8), ()), Row((1, 6, 1, 8), ()))
    assert [row.length for row in whole.rows] == [2, 6, 4]
    assert whole.scheduled(0) == (2, 6, 4)
    decoded = plan(ROWS.token_by_token(3))
    assert decoded.rows == (Row((3, 1), ()), Row((2, 7, 1), (8, 2, 8)), Row((1, 6, 1), (8,)))
    assert [decoded.scheduled(step) for step in range(4)] == [(2, 3, 3), (0, 1, 1), (0, 1, 0), (0, 1, 0)]


@st.composite
def ragged(draw: st.DrawFn) -> Feed:
    """Feeds of a few unequal rows in any chunks."""
    width = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(1, width), min_size=1, max_size=4))
    tokens = tuple(tuple(range(10 * row, 10 * row + width)) for row in range(len(lengths)))
    feed = Feed(tokens=tokens, steps=(Forward(width),), lengths=tuple(lengths))
    edges = [0, *sorted(draw(st.sets(st.integers(1, width))))]
    return feed.split(after - before for before, after in pairwise(edges))


@settings(deadline=None)
@given(ragged())
def test_every_token_is_computed_once_and_in_order(feed: Feed) -> None:
    steps = plan(feed)
    assert steps.steps == feed.chunks
    scheduled = [steps.scheduled(step) for step in range(len(steps.steps))]
    for index, (row, cells) in enumerate(zip(steps.rows, feed.real, strict=True)):
        assert row.prompt
        assert (*row.prompt, *row.forced) == feed.tokens[index][cells.start : cells.stop]
        assert sum(step[index] for step in scheduled) == row.length
        # What is decoded is decoded one token a step, after the whole prompt.
        computed = [step[index] for step in scheduled if step[index]]
        assert computed[len(computed) - len(row.forced) :] == [1] * len(row.forced)


def test_padding_on_the_left_is_no_part_of_a_row() -> None:
    left = replace(ROWS, padding="left")
    assert [row.prompt for row in plan(left).rows] == [(5, 9), (2, 7, 1, 8, 2, 8), (1, 8, 0, 3)]


@pytest.mark.parametrize("step", [0, 1])
def test_a_step_schedules_no_more_than_its_columns(step: int) -> None:
    assert max(plan(ROWS.split([3])).scheduled(step)) == 3
