"""The JSON report: valid by its schema, written whole, and described in docs/report.md field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.report.document import SCHEMA_VERSION, document, write_document
from tests.conftest import ROOT
from tests.report.records import BROKEN, EXPECTED, FAILED, LACKING, PASSED, record

SCHEMA = json.loads(resources.files("conformance.report").joinpath("report.schema.json").read_text())
PAGE = (ROOT / "docs" / "report.md").read_text()
SPENT = {"start": 1.5, "prepare": 0.2, "forward": 0.3, "calls": 12, "shared": 4}
SECONDS = {"total": 9.0, "engine start": 1.5, "engine": 2.5, "reference": 1.0, "harness": 4.0}
RAN = {
    "mine": {
        "title": "my engine",
        "code": "its own",
        "releases": ["2604"],
        "capabilities": ["decode"],
        "dtypes": ["float32"],
        "limits": {"head_dim": {"one_of": [16]}},
        "versions": {"engine": "1.2"},
        "numerics": {"threads": 1},
        "starts": 1,
        "seconds": SPENT,
    }
}


def made(**changes: Any) -> dict[str, Any]:
    records = [record(result) for result in (PASSED, FAILED, BROKEN, EXPECTED, LACKING)]
    arguments: dict[str, Any] = {
        "records": records,
        "provenance": RAN,
        "settings": {"examples": 2},
        "seconds": SECONDS,
        **changes,
    }
    return document(**arguments)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"] == {"const": SCHEMA_VERSION}


def test_a_report() -> None:
    report = made()
    jsonschema.validate(report, SCHEMA)
    assert set(report) == set(SCHEMA["properties"])
    assert report["summary"].startswith("5 cells: ")
    assert [cell["status"] for cell in report["cells"]] == ["pass", "fail", "error", "known", "n/a"]
    assert report["backends"] == RAN


@pytest.mark.parametrize("code", ["stand-in", "sha256:" + "0" * 64])
def test_which_code_ran(code: str) -> None:
    ran = {"mine": {**RAN["mine"], "code": code}}
    assert made(provenance=ran)["backends"]["mine"]["code"] == code


@pytest.mark.parametrize(
    "changes",
    [
        {"provenance": {"mine": {**RAN["mine"], "code": "some fork"}}},
        {"provenance": {"mine": {"title": "my engine"}}},
        {"records": [{**record(PASSED), "status": "fine"}]},
        {"records": [{**record(PASSED), "opinion": "good"}]},
        {"records": [{k: v for k, v in record(PASSED).items() if k != "witnesses"}]},
        {"seconds": {"total": 1.0}},
    ],
)
def test_what_breaks_the_schema_is_never_written(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        made(**changes)


def test_it_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "build" / "report.json"
    write_document(file, made())
    assert json.loads(file.read_text()) == made()
    assert [entry.name for entry in file.parent.iterdir()] == ["report.json"]


def test_what_is_no_json_leaves_the_old_report(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_document(file, made())
    with pytest.raises((TypeError, ValueError)):
        write_document(file, {**made(), "settings": {"directory": object()}})
    assert json.loads(file.read_text()) == made()


def test_no_number_that_json_does_not_have(tmp_path: Path) -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            write_document(tmp_path / "report.json", {**made(), "settings": {"ratio": value}})


def _names(schema: object) -> Iterator[str]:
    """Every property and every enumerated word of the schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (str(word) for word in schema.get("enum", ()))
        if isinstance(schema.get("required"), list):
            yield from schema["required"]
        for part in schema.values():
            yield from _names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _names(part)


def test_the_page_describes_every_field() -> None:
    assert sorted({name for name in _names(SCHEMA) if f"`{name}`" not in PAGE}) == []


def test_the_page_describes_no_field_that_is_gone() -> None:
    known = set(_names(SCHEMA))
    described = set(re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE))
    assert sorted(described - known) == []


def test_the_three_lines_of_the_page_are_the_three_lines_of_a_record() -> None:
    record_lines = record(FAILED, bundle="build/conformance/bundles/decode-law-mine-2604")["lines"]
    assert "\n".join(record_lines) in PAGE
