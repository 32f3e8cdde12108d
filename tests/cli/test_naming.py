"""`conformance naming`: bad input; the work itself is tested in tests/test_naming.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Conformance


def test_an_unknown_family(conformance: Conformance) -> None:
    code, out, err = conformance("naming", "--family", "plamo")
    assert (code, out) == (2, "")
    assert err == "conformance: family = 'plamo', but should be one of plamo3, gemma4\n"


def test_a_page_that_is_not_there(conformance: Conformance) -> None:
    code, out, err = conformance("naming", "--docs", ".")
    assert (code, out) == (2, "")
    assert err == "conformance: there is no such file; conformance mutants writes it [detection.md]\n"
    assert not Path("detection.md").exists()


def test_a_page_is_written_and_the_rest_of_it_kept(conformance: Conformance) -> None:
    Path("detection.md").write_text("# Detection\n\nfaults\n")
    code, out, err = conformance(
        *("naming", "--docs", ".", "--pairs", "0", "--conforming", "1", "--fault", "window-one-short")
    )
    assert (code, out) == (0, "")
    page = Path("detection.md").read_text()
    assert page.startswith("# Detection\n\nfaults\n\n## Naming\n")
    assert (
        "Written by `conformance naming --family plamo3 --fault window-one-short --pairs 0 --conforming 1 "
        "--docs docs`." in page
    )
    assert "| one fault of the bank | 1 | 1 (100.0 % of those that can be told) | 0 | 0 | 0 |" in page
    assert "alone: 1 of 1 named right" in err
