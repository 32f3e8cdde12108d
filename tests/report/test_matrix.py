"""The matrix on a terminal that is none: what its squares and its last lines say."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from conformance.report.matrix import console_for, print_matrix, square_words, summary
from tests.report.records import (
    BROKEN,
    DECLINED,
    EQUAL,
    EXPECTED,
    FAILED,
    GONE,
    KNOWN,
    LACKING,
    PASSED,
    REFUSED,
    UNSEEN,
    record,
)

SQUARES = [
    (PASSED, "1.3"),
    (EQUAL, "="),
    (REFUSED, "refuses"),
    (EXPECTED, "known 150"),
    (FAILED, "divergent 1234"),
    (BROKEN, "error"),
    (UNSEEN, "error"),
    (LACKING, "n/a"),
]


def printed(*records: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    print_matrix(records, console_for(stream, False))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(("result", "words"), SQUARES)
def test_a_square(result: Any, words: str) -> None:
    assert square_words(record(result)) == words


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(0.04, "0.04"), (9.96, "10"), (99.4, "99"), (100, "100"), (99_999, "99999"), (2e5, "2e+05")],
)
def test_a_figure(ratio: float, words: str) -> None:
    assert square_words({**record(PASSED), "ratio": ratio}) == words


def test_a_verdict_that_is_no_matter_of_values_has_no_figure() -> None:
    assert square_words({**record(FAILED), "ratio": 0.0}) == "divergent"
    assert square_words({**record(PASSED), "ratio": 0.0}) == "holds"


def test_cases_down_and_backends_across() -> None:
    lines = printed(
        record(PASSED, "decode/law", "mine"),
        record(FAILED, "decode/law", "yours"),
        record(EQUAL, "window/law", "mine"),
    )
    rows = [[square.strip() for square in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert rows == [["decode/law", "1.3", "divergent 1234"], ["window/law", "=", ""]]
    heads = [[square.strip() for square in line.split("┃")[1:-1]] for line in lines if "┃" in line]
    assert heads == [["", "mine", "yours"], ["case", "2604", "2604"]]


def test_what_is_known_and_what_does_not_apply_with_reasons() -> None:
    declined = replace(EXPECTED, explained={DECLINED: None, KNOWN: 2.4})
    lines = printed(
        record(EXPECTED),
        record(declined, "load/law"),
        record(LACKING, "cache/crop"),
        record(LACKING, "cache/reset"),
        record(LACKING, "cache/crop", "yours"),
    )
    assert lines[lines.index("known differences:") :] == [
        "known differences:",
        "  mine 2604: decode/law, load/law: it forgets (as reference + reset-ignored, within 2.4 x noise)",
        "  mine 2604: load/law: it has no kernel (refused)",
        "not applicable:",
        "  mine 2604: cache/crop, cache/reset: no crop, decode",
        "  yours 2604: cache/crop: no crop, decode",
        "5 cells: 2 known differences, 3 not applicable (6 comparisons in 2 trials)",
    ]


def test_effective_window_spans() -> None:
    span = {"prefill: span": [{"seen": 5, "expected": 4}, {"seen": 4, "expected": 4}]}
    right = {"prefill: span": [{"seen": 4, "expected": 4}]}
    lines = printed(
        {**record(FAILED, "window/local-prefill"), "measured": span},
        {**record(PASSED, "window/local-prefill", "yours"), "measured": right},
    )
    place = lines.index("tokens seen by the last position:")
    assert lines[place + 1 : place + 3] == [
        "  mine 2604: local-prefill 5 instead of 4",
        "  yours 2604: as the release says",
    ]


def test_a_long_reason_stays_on_one_line() -> None:
    reason = "no " + ", ".join(f"capability-{n}" for n in range(40))
    assert f"  mine 2604: decode/law: {reason}" in printed({**record(LACKING), "reason": reason})


def test_brackets_are_text() -> None:
    reason = "head_dim 16 is outside [the] limit [/bold]: one_of [24]"
    assert f"  mine 2604: decode/law: {reason}" in printed({**record(LACKING), "reason": reason})


def test_the_summary() -> None:
    records = [record(result) for result, _ in SQUARES]
    assert summary(records) == (
        "8 cells: 3 conform, 1 known differences, 1 differ, 2 errors, 1 not applicable "
        "(35 comparisons in 13 trials)"
    )
    assert summary([record(PASSED)]) == "1 cells: 1 conform (6 comparisons in 2 trials)"
    assert summary([record(GONE)]) == "1 cells: 1 differ (3 comparisons in 1 trials)"


def test_no_colour_where_none_is_wanted() -> None:
    assert "\x1b" not in "\n".join(printed(record(FAILED)))
    stream = io.StringIO()
    print_matrix([record(FAILED)], console_for(stream, True))
    assert "\x1b" in stream.getvalue()
