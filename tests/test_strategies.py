from __future__ import annotations

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from conformance.feeds import Feed, Forward
from conformance.strategies import feeds, splits
from tests.families.plamo3.sizes import tiny

SPEC = tiny()
steady = settings(deadline=None, derandomize=True, database=None)


@steady
@given(feeds(SPEC, min_width=3, max_width=9, batch=2))
def test_feeds_are_whole_float32_rows_within_their_bounds(feed: Feed) -> None:
    assert feed.batch == 2
    assert 3 <= feed.width <= 9
    assert feed == Feed(tokens=feed.tokens, steps=(Forward(feed.width),))
    assert all(0 <= token < SPEC.vocab_size for row in feed.tokens for token in row)


@pytest.mark.parametrize("token", [0, SPEC.vocab_size - 1])
def test_tokens_come_from_the_whole_vocabulary(token: int) -> None:
    find(feeds(SPEC, min_width=1, max_width=4), lambda feed: token in feed.tokens[0])


@pytest.mark.parametrize("width", [3, 9])
def test_both_bounds_of_the_width_are_drawn(width: int) -> None:
    find(feeds(SPEC, min_width=3, max_width=9), lambda feed: feed.width == width)


def test_rows_are_drawn_apart() -> None:
    find(feeds(SPEC, min_width=3, max_width=3, batch=2), lambda feed: feed.tokens[0] != feed.tokens[1])


def test_a_feed_shrinks_to_the_shortest_of_token_0() -> None:
    assert find(feeds(SPEC, min_width=3, max_width=9), lambda feed: True).tokens == ((0, 0, 0),)


@steady
@given(st.data(), st.integers(2, 40), st.integers(2, 6))
def test_splits_are_two_chunks_or_more_that_sum_to_the_width(
    data: st.DataObject, width: int, most: int
) -> None:
    chunks = data.draw(splits(width, most=most))
    assert sum(chunks) == width
    assert 2 <= len(chunks) <= most
    assert min(chunks) >= 1


def test_a_split_shrinks_to_one_cut_after_the_first_token() -> None:
    assert find(splits(12), lambda chunks: True) == (1, 11)


def test_a_split_cuts_a_feed() -> None:
    feed = Feed(tokens=((1, 2, 3, 4, 5),), steps=(Forward(5),))
    chunks = find(splits(5), lambda chunks: len(chunks) == 3)
    assert feed.split(chunks).chunks == chunks
