"""From feeds to calls of mlx-lm's batches. No engine is needed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.backends.mlx.steps import Chunk, chunks, left_padding
from conformance.feeds import Feed, Forward

ROWS = Feed(tokens=((3, 1, 4, 1), (2, 7, 1, 8), (1, 6, 1, 8)), steps=(Forward(4),))
UNEQUAL = replace(ROWS, lengths=(1, 4, 3))


def test_rows_of_equal_length_have_no_padding() -> None:
    assert chunks(ROWS.split([3])) == (Chunk(0, 3, (3, 3, 3)), Chunk(3, 1, (1, 1, 1)))
    assert all(not any(chunk.padding) and chunk.rows == (0, 1, 2) for chunk in chunks(ROWS.token_by_token()))


def test_rows_that_end_in_a_chunk_are_padded_in_it_and_leave_after_it() -> None:
    first, second = chunks(UNEQUAL.split([2]))
    assert (first.rows, first.padding) == ((0, 1, 2), (1, 0, 0))
    assert (second.rows, second.padding) == ((1, 2), (0, 1))
    assert chunks(replace(UNEQUAL, padding="right").split([2])) == (first, second)


def test_left_padding_is_fed() -> None:
    feed = replace(UNEQUAL, padding="left")
    assert chunks(feed) == (Chunk(0, 4, (4, 4, 4)),)
    assert left_padding(feed) == (3, 0, 1)
    assert left_padding(UNEQUAL) == (0, 0, 0)


def test_a_chunk_of_nothing_but_padding_is_not_fed() -> None:
    assert chunks(replace(ROWS, lengths=(1, 2, 2)).split([2])) == (Chunk(0, 2, (1, 2, 2)),)


@given(st.data())
@settings(derandomize=True)
def test_every_token_is_fed_once(data: st.DataObject) -> None:
    lengths = tuple(data.draw(st.integers(1, 4)) for _ in ROWS.tokens)
    feed = replace(ROWS, lengths=lengths).split(data.draw(st.sampled_from([[1, 1, 1, 1], [2, 2], [3, 1]])))
    fed = [
        (row, chunk.start + place)
        for chunk in chunks(feed)
        for row in chunk.rows
        for place in range(chunk.lengths[row])
    ]
    assert sorted(fed) == [(row, column) for row, length in enumerate(lengths) for column in range(length)]
