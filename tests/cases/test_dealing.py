"""The same run everywhere: two processes deal the same models, byte for byte, and the same feeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cases.chapters import RELEASES, all_cases
from tests.conftest import ROOT


def started(directory: Path, hash_seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cases.dealt", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "CONFORMANCE_CACHE": str(directory)},
    )


def test_two_processes_deal_the_same(tmp_path: Path) -> None:
    tables = []
    with started(tmp_path / "one", "1") as one, started(tmp_path / "two", "2") as two:
        for process in (one, two):
            out, _ = process.communicate()
            assert process.returncode == 0
            tables.append(json.loads(out))
    assert tables[0] == tables[1]
    assert list(tables[0]) == [f"{case} {release}" for case in all_cases() for release in RELEASES]
    assert all(trials for trials in tables[0].values())
    assert len({trial[0] for trials in tables[0].values() for trial in trials}) > 10
