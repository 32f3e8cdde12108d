"""Operations: each kind of step is among them, and they fit the cache that they are for."""

from __future__ import annotations

from conformance.feeds import Crop, Reorder, Reset
from conformance.operations import cache_operations


def test_every_kind_of_step_on_a_cache_is_there() -> None:
    assert {type(step) for step in cache_operations(9).values()} == {Crop, Reset, Reorder}


def test_cuts_fall_inside_at_both_ends_and_beyond() -> None:
    lengths = [step.length for step in cache_operations(9).values() if isinstance(step, Crop)]
    assert lengths == [7, 2, 0, 12]


def test_rows_are_those_asked_for() -> None:
    steps = cache_operations(9, permuted=(1, 0), forked=(0, 0))
    assert (steps["reorder"], steps["fork"]) == (Reorder((1, 0)), Reorder((0, 0)))
