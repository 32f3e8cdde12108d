"""Plots leave nothing out: a line without a colour is an error."""

from __future__ import annotations

import pytest

from conformance.calibration import plots


def test_each_line_has_a_colour_of_its_own() -> None:
    coloured = plots._coloured(["vllm", "reference"])
    assert [thing for _, thing in coloured] == ["vllm", "reference"]
    assert len({colour for colour, _ in coloured}) == 2


def test_more_lines_than_colours_are_refused() -> None:
    many = range(len(plots._COLOURS) + 1)
    with pytest.raises(ValueError, match=r"^7 lines, but there are 6 colours$"):
        plots._coloured(many)
