"""Records: what a cell becomes in the report, and the three lines that a red one shows."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest

from conformance.compare.verdict import Place
from conformance.report.record import record_of, verdict_data, verdict_words
from tests.report.records import (
    BROKEN,
    DEAD,
    DECLINED,
    DIVERGENT,
    EQUAL,
    EXPECTED,
    FAILED,
    GONE,
    KNOWN,
    LACKING,
    PASSED,
    REFUSED,
    UNMET,
    UNSEEN,
    cell_of,
    finding_of,
    record,
)

SCHEMA = json.loads(resources.files("conformance.report").joinpath("report.schema.json").read_text())
EVERY = (PASSED, EQUAL, REFUSED, FAILED, BROKEN, UNSEEN, EXPECTED, LACKING, GONE)
MODEL = "2604: 2 layers, D 48, heads 6/2, d 16, F 56, W 4, V 97, tied, seed 7"


def valid(definition: str, data: Any) -> None:
    jsonschema.validate(data, {"$ref": f"#/$defs/{definition}", "$defs": SCHEMA["$defs"]})


@pytest.mark.parametrize("result", EVERY, ids=lambda result: result.reason or result.grade)
def test_every_record_keeps_the_schema(result: Any) -> None:
    made = record(result)
    valid("cell", made)
    assert json.loads(json.dumps(made)) == made


def test_the_schema_describes_every_field() -> None:
    made = record(FAILED)
    definitions = SCHEMA["$defs"]
    assert set(made) == set(definitions["cell"]["properties"])
    assert set(made["findings"][0]) == set(definitions["finding"]["properties"])
    assert set(made["findings"][0]["verdict"]) == set(definitions["verdict"]["properties"])
    predicted = record(replace(FAILED, findings=[finding_of(DIVERGENT, predicted=UNMET)]))["findings"][0]
    assert set(predicted["prediction"]) == set(
        definitions["finding"]["properties"]["prediction"]["properties"]
    )
    assert set(record(EXPECTED)["known"][0]) == set(
        definitions["cell"]["properties"]["known"]["items"]["properties"]
    )


def test_a_pass() -> None:
    assert record(PASSED) == {
        "case": "decode/law",
        "law": "the law of decode/law",
        "family": "plamo3",
        "backend": "mine",
        "release": "2604",
        "status": "pass",
        "reason": "",
        "grade": "rounding",
        "ratio": 1.26,
        "trials": 2,
        "claims": 6,
        "refused": 0,
        "witnesses": {"it was split": 2},
        "measured": {},
        "known": [],
        "findings": [],
        "nodeid": "cases/test_decode.py::law[mine-2604]",
        "bundle": None,
        "lines": [],
    }


def test_a_finding() -> None:
    (finding,) = record(FAILED)["findings"]
    assert finding == {
        "claim": "reference",
        "text": "1 row x 6, whole, float32 vs the reference",
        "model": MODEL,
        "checkpoint": "abcd",
        "verdict": {
            "grade": "divergent",
            "compared": 6,
            "ratio": 1234.5,
            "max_abs": 0.25,
            "mean_abs": 0.01,
            "max_ulp": 99.0,
            "max_relative": 0.125,
            "max_kl": 0.5,
            "flips": 1,
            "near_ties": 2,
            "shift": None,
            "bad": 1,
            "first_bad": [0, 5],
            "problem": "",
        },
        "distance": {"from_window_edge": 1, "beyond_chunk_border": 5},
        "three_way": {},
        "prediction": None,
    }


def test_a_finding_beside_a_prediction() -> None:
    made = record(replace(FAILED, findings=[finding_of(DIVERGENT, predicted=UNMET)]))
    assert made["findings"][0]["prediction"] == {
        "faults": ["reset-ignored"],
        "entries": ["mine.toml entry 1"],
        "ratio": 230.4,
        "problem": "",
    }
    valid("cell", made)
    assert made["lines"][0] == (
        "what: decode/law on mine, release 2604: reference: divergent, error / noise 1.23e+03, "
        "max abs 0.25, 1 of 6 positions; reference + reset-ignored leaves 230 x noise (1 of 6 claims failed)"
    )


def test_known_differences() -> None:
    made = record(replace(EXPECTED, explained={KNOWN: 1.26, DECLINED: None}))
    valid("cell", made)
    assert made["known"] == [
        {
            "what": "it forgets",
            "evidence": "docs/plamo3.md §7",
            "entry": "mine.toml entry 1",
            "faults": ["reset-ignored"],
            "ratio": 1.26,
        },
        {
            "what": "it has no kernel",
            "evidence": "docs/plamo3.md §3",
            "entry": "mine.toml entry 2",
            "faults": [],
            "ratio": None,
        },
    ]
    assert made["lines"] == []


class TestTheThreeLines:
    def test_of_values(self) -> None:
        assert record(FAILED, bundle="build/bundles/decode-law-mine-2604")["lines"] == [
            "what: decode/law on mine, release 2604: reference: divergent, error / noise 1.23e+03, "
            "max abs 0.25, 1 of 6 positions (1 of 6 claims failed)",
            "where: first bad at row 0 position 5 (W+1): 1 row x 6, whole, float32 vs the reference; "
            + MODEL,
            "again: conformance replay build/bundles/decode-law-mine-2604",
        ]

    def test_of_an_error(self) -> None:
        assert record(BROKEN, bundle="build/bundles/x")["lines"] == [
            "what: decode/law on mine, release 2604: reference: error: died: exited with code 11 during run "
            "(1 of 6 claims failed)",
            "where: 1 row x 6, whole, float32 vs the reference; " + MODEL,
            "again: conformance replay build/bundles/x",
        ]

    def test_without_a_bundle_the_case_is_run_again(self) -> None:
        lines = record(FAILED, options=" --examples 5 --checkpoint '/my model'")["lines"]
        assert lines[2] == (
            "again: pytest 'cases/test_decode.py::law[mine-2604]' --backend mine --release 2604"
            " --examples 5 --checkpoint '/my model'"
        )

    @pytest.mark.parametrize(("position", "place"), [(0, "W-4"), (3, "W-1"), (4, "W"), (5, "W+1")])
    def test_the_place_in_the_window(self, position: int, place: str) -> None:
        finding = finding_of(replace(DIVERGENT, first_bad=Place(0, position)))
        lines = record(replace(FAILED, findings=[finding]))["lines"]
        assert lines[1].startswith(f"where: first bad at row 0 position {position} ({place}): ")

    @pytest.mark.parametrize("result", [UNSEEN, GONE])
    def test_without_a_finding_there_is_nowhere_to_point_at(self, result: Any) -> None:
        assert record(result)["lines"] == [
            f"what: decode/law on mine, release 2604: {result.reason}",
            "again: pytest 'cases/test_decode.py::law[mine-2604]' --backend mine --release 2604",
        ]

    def test_a_brought_checkpoint_has_no_seed(self) -> None:
        lines = record(replace(FAILED, findings=[finding_of(DIVERGENT, brought=True)]))["lines"]
        assert "seed" not in lines[1]

    def test_a_name_with_quotes_can_be_pasted_into_a_shell(self) -> None:
        name = "./worker 'two words'"
        (again,) = [line for line in record(UNSEEN, backend=name)["lines"] if line.startswith("again: ")]
        assert name in shlex.split(again)

    @pytest.mark.parametrize("result", [PASSED, EXPECTED, LACKING])
    def test_what_is_not_red_has_none(self, result: Any) -> None:
        assert record(result)["lines"] == []


def test_verdicts_in_words() -> None:
    assert verdict_words(DEAD) == "error: died: exited with code 11 during run"
    assert verdict_words(DIVERGENT) == "divergent, error / noise 1.23e+03, max abs 0.25, 1 of 6 positions"
    assert verdict_data(DEAD)["first_bad"] is None


def test_the_release_is_the_cells() -> None:
    made = record_of(cell_of("decode/law", release="4k"), PASSED, "id")
    assert made["release"] == "4k"
