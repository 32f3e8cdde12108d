"""`conformance list`: backends with why they are not available, releases, cases, faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conformance.backends.registry import known_backends
from conformance.case import case_directory, known_cases
from conformance.families import FAMILIES
from conformance.faults import faults_of
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
    assert content["faults"]["plamo3"]["window-one-short"] == "Local layers see one token too few."


def test_for_people(conformance: Conformance) -> None:
    code, out, err = conformance("list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    width = max(map(len, known_backends()))
    assert f"  {'reference':{width}} the reference implementation: available" in lines
    assert f"  {'plamo3':{width}} 2604, 4k" in lines
    for case, law in known_cases().items():
        assert f"  {case:26} {law}" in lines
    for family in FAMILIES:
        assert f"faults of {family}" in lines
        for fault in faults_of(family).FAULTS:
            assert f"  {fault.id:34} {fault.what}" in lines


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
