"""The page: everything of the report that people ask for, in one file that loads nothing and runs nothing."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conformance.backends.registry import known_backends
from conformance.case import known_cases
from conformance.report.html import page, write_page
from tests.report.records import BROKEN, EXPECTED, FAILED, LACKING, PASSED, record
from tests.report.test_document import made

TRICKY = "shape <script>alert('x')</script> & \"more\""
# Elements that HTML leaves open.
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails where a tag is not closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())

    def squares(self) -> list[dict[str, str | None]]:
        return [
            attributes
            for tag, attributes in self.tags
            if (attributes.get("class") or "").startswith("square")
        ]


def test_it_shows_every_cell_and_every_red_line() -> None:
    records = [
        record(PASSED, "decode/law"),
        record(FAILED, "decode/law", "yours"),
        record(BROKEN, "window/law"),
        record(EXPECTED, "cache/law"),
        record(LACKING, "cache/law", "yours"),
    ]
    shown = Page(page(made(records=records)))
    classes = {(square["class"], square["title"]) for square in shown.squares()}
    assert classes == {
        ("square pass", "rounding"),
        ("square fail", "1 of 6 claims failed"),
        ("square error", "1 of 6 claims failed"),
        ("square known", "it forgets"),
        ("square na", "no crop, decode"),
    }
    text = "\n".join(shown.words)
    for cell in records:
        assert cell["law"] in text
        assert "\n".join(cell["lines"]) in text
    assert "docs/plamo3.md §7" in text
    assert "as reference + reset-ignored, within 1.3 x noise" in text
    for word in ("my engine", "its own", "engine 1.2", "threads: 1", made()["summary"]):
        assert word in text


def test_nothing_is_loaded_and_nothing_runs() -> None:
    shown = Page(page(made()))
    assert {tag for tag, _ in shown.tags} & {"script", "link", "img", "iframe"} == set()
    assert [a for _, a in shown.tags if {"src", "href", "onclick"} & set(a)] == []
    assert "http" not in page(made())
    assert "@import" not in page(made())


@pytest.mark.parametrize("field", ["reason", "law", "case", "backend"])
def test_what_others_wrote_is_text(field: str) -> None:
    shown = Page(page(made(records=[{**record(PASSED), field: TRICKY}, record(FAILED, "window/law")])))
    assert "script" not in {tag for tag, _ in shown.tags}
    assert TRICKY in shown.words or TRICKY in {square["title"] for square in shown.squares()}


def test_a_backend_that_could_not_be_asked() -> None:
    ran = {"mine": {"title": "my engine", "code": "its own", "problem": "died", "starts": 1}}
    seconds = {"start": 0.0, "prepare": 0.0, "forward": 0.0, "calls": 0, "shared": 0}
    assert "my engine" in page(made(provenance={"mine": {**ran["mine"], "seconds": seconds}}))


def test_an_empty_report() -> None:
    assert "0 cells" in page(made(records=[], provenance={}))


def test_it_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "build" / "report.html"
    write_page(file, made())
    assert file.read_text(encoding="utf-8") == page(made())
    assert [entry.name for entry in file.parent.iterdir()] == ["report.html"]


def test_every_case_and_every_backend_has_its_place() -> None:
    cases, backends = list(known_cases()), list(known_backends())
    records = [record(PASSED, case, backend) for case in cases for backend in backends]
    shown = Page(page(made(records=records)))
    assert len(shown.squares()) == len(cases) * len(backends)
    head = shown.words[shown.words.index("case") :]
    assert head[1 : 1 + 2 * len(backends) : 2] == backends
    assert [word for word in head if word in cases] == cases


def test_a_cell_that_did_not_run_leaves_its_square_empty() -> None:
    records = [record(PASSED, "decode/law"), record(PASSED, "cache/law", "yours")]
    shown = Page(page(made(records=records)))
    assert len(shown.squares()) == 2
    assert sum(tag == "td" and not attributes for tag, attributes in shown.tags) >= 2


def test_all_that_others_wrote_is_text() -> None:
    """Versions, numerics, reasons, known differences, lines: whatever ends up in a report."""
    records = [record(r, f"a/{i}") for i, r in enumerate((PASSED, FAILED, BROKEN, EXPECTED, LACKING))]
    plain = made(records=records)
    shown = Page(page(_tricky(plain)))
    # The same page but for its words.
    assert [tag for tag, _ in shown.tags] == [tag for tag, _ in Page(page(plain)).tags]
    assert sum(TRICKY in word for word in shown.words) > 20


def _tricky(value: Any, key: str = "") -> Any:
    """The same report with markup after every word of it, names of backends and versions included."""
    match value:
        case dict():
            named = key in ("backends", "versions", "numerics")
            return {f"{k}{TRICKY}" if named else k: _tricky(v, k) for k, v in value.items()}
        case list():
            return [_tricky(member) for member in value]
        case str() if key not in ("status", "grade"):
            return f"{value}{TRICKY}"
    return value
