"""`conformance list`: backends with why they are not available, releases, cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conformance.backends.registry import known_backends
from conformance.case import case_directory, known_cases
from tests.cli.conftest import Conformance


def test_as_json(conformance: Conformance) -> None:
    code, out, err = conformance("list", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert list(content["backends"]) == list(known_backends())
    assert content["backends"]["reference"] == {"title": "the reference implementation", "unavailable": None}
    assert content["backends"]["vllm"]["unavailable"] == "no environment: conformance env sync vllm"
    assert content["releases"]["plamo3"] == ["2604", "4k"]
    assert content["cases"] == known_cases()


def test_for_people(conformance: Conformance) -> None:
    code, out, err = conformance("list")
    assert (code, err) == (0, "")
    assert "  reference      the reference implementation: available\n" in out
    assert "  plamo3         2604, 4k\n" in out
    for case, law in known_cases().items():
        assert f"  {case:26} {law}" in out.replace("\n", " ") or case in out


def test_every_case_function_is_listed() -> None:
    """Listing reads the source; a case that is written in another way would be missing."""
    decorated = sum(file.read_text().count("\n@case(") for file in case_directory().glob("test_*.py"))
    assert len(known_cases()) == decorated > 10


def test_listing_loads_no_torch_and_no_hypothesis(tmp_path: Path) -> None:
    program = (
        "import sys; from conformance.cli import main; sys.argv = ['conformance', 'list', '--json']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'transformers', 'vllm'} & set(sys.modules)"
    )
    environment = {**os.environ, "CONFORMANCE_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["releases"]["plamo3"] == ["2604", "4k"]
