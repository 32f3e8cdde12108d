"""The part of a detection page about naming: counted, and kept when the rest is written again."""

from __future__ import annotations

from conformance.naming import Naming
from conformance.report.naming import naming_of, naming_section, with_naming

RIGHT = Naming("2604", ("a",), ("a",), (), "named", 30, 4)
TIED = Naming("2604", ("b",), ("a",), (("b",),), "named", 30, 4)
HIDDEN = Naming("4k", ("a", "c"), ("a",), (), "named", 30, 4)
UNKNOWN = Naming("4k", ("a", "d"), (), (), "unknown", 30, 4)
WRONG = Naming("4k", ("d",), ("e",), (), "named", 30, 4)
PLAIN = Naming("4k", (), (), (), "conforms", 600, 0)
COMMAND = "conformance naming --family plamo3 --pairs 3 --conforming 2 --docs docs"


def test_what_became_of_each() -> None:
    outcomes = [naming.outcome for naming in (RIGHT, TIED, HIDDEN, UNKNOWN, WRONG)]
    assert outcomes == ["right", "equal", "equal", "unknown", "wrong"]


def test_the_counts() -> None:
    lines = naming_section(
        [RIGHT, TIED, WRONG], [HIDDEN, UNKNOWN, RIGHT], [PLAIN, PLAIN], COMMAND
    ).splitlines()
    assert lines[0] == "## Naming"
    assert f"Written by `{COMMAND}`." in lines
    assert "| one fault of the bank | 3 | 1 (50.0 % of those that can be told) | 1 | 0 | 1 |" in lines
    assert "| two, drawn at random | 3 | 1 (50.0 % of those that can be told) | 1 | 1 | 0 |" in lines
    assert "Without any fault, over a cache: 2 models, 1,200 probes, 0 names given." in lines


def test_what_was_not_named_right_is_listed() -> None:
    lines = naming_section([RIGHT, TIED], [UNKNOWN], [], COMMAND).splitlines()
    assert "| `b` | 2604 | `a` | `b` | equal |" in lines
    assert "| `a` + `d` | 4k | nothing |  | unknown |" in lines
    assert not any(line.startswith("| `a` |") for line in lines)


def test_a_name_given_to_a_model_without_faults_is_counted() -> None:
    text = naming_section([], [], [PLAIN, Naming("4k", (), ("a",), (), "named", 30, 2)], COMMAND)
    assert "630 probes, 1 names given." in text


def test_the_rest_of_the_page_and_the_section_are_written_apart() -> None:
    section = naming_section([RIGHT], [], [], COMMAND)
    page = with_naming("# Detection\n\nfaults\n", section)
    assert naming_of(page) == section
    again = with_naming(page, naming_section([], [], [], COMMAND))
    assert again.startswith("# Detection\n\nfaults\n\n## Naming\n")
    assert again.count("## Naming") == 1
    assert naming_of("# Detection\n") == ""
