from __future__ import annotations

from typing import Any

import pytest

from conformance.errors import BadInput
from conformance.limits import allowed, violation, within

LIMITS: dict[str, dict[str, Any]] = {
    "head_dim": {"one_of": [32, 64]},
    "hidden_size": {"multiple_of": 16, "max": 128},
    "window_size": {"min": 4},
}


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        ({}, [1, 2, 3, 4, 6]),
        ({"min": 3}, [3, 4, 6]),
        ({"max": 3}, [1, 2, 3]),
        ({"one_of": [2, 6, 8]}, [2, 6]),
        ({"multiple_of": 3}, [3, 6]),
        ({"min": 2, "max": 4, "multiple_of": 2}, [2, 4]),
    ],
)
def test_a_value_is_within_all_bounds_of_its_field(bounds: dict[str, Any], kept: list[int]) -> None:
    assert [value for value in (1, 2, 3, 4, 6) if within(value, bounds)] == kept


def test_allowed_candidates_come_in_ascending_order() -> None:
    assert allowed("hidden_size", (112, 48, 100, 144), LIMITS) == [48, 112]
    assert allowed("window_size", (3, 4, 5), LIMITS) == [4, 5]


def test_a_field_without_a_limit_takes_every_candidate() -> None:
    assert allowed("vocab_size", (131, 97), LIMITS) == [97, 131]


def test_where_no_candidate_fits_the_limit_names_its_own_values() -> None:
    assert allowed("head_dim", (16, 24), LIMITS) == [32, 64]
    assert allowed("head_dim", (16, 24), {"head_dim": {"one_of": [128, 64, 80], "max": 100}}) == [64, 80]


@pytest.mark.parametrize("bounds", [{"min": 4096}, {"one_of": [64], "max": 48}, {"one_of": []}])
def test_a_limit_that_nothing_meets_is_named(bounds: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        allowed("hidden_size", (48, 80), {"hidden_size": bounds})
    assert (
        str(caught.value) == f"limits.hidden_size = {bounds!r}, but should be met by at least one tiny model"
    )


def test_values_within_their_limits_violate_none() -> None:
    assert violation({"head_dim": 32, "hidden_size": 112, "window_size": 4, "vocab_size": 7}, LIMITS) is None
    assert violation({"vocab_size": 7}, LIMITS) is None
    assert violation({"head_dim": 7}, {}) is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"head_dim": 24}, "head_dim 24 is outside its limit: one_of [32, 64]"),
        ({"hidden_size": 144}, "hidden_size 144 is outside its limit: multiple_of 16, max 128"),
        ({"head_dim": 32, "window_size": 3}, "window_size 3 is outside its limit: min 4"),
    ],
)
def test_the_first_broken_limit_is_told(values: dict[str, int], words: str) -> None:
    assert violation(values, LIMITS) == words
