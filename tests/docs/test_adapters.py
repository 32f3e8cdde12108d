"""The example of docs/adapters.md is the file that runs, is short, and conforms."""

import json
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "numpy_engine.py"


def check(directory: Path, backend: str) -> tuple[int, dict[str, str]]:
    command = [
        sys.executable,
        "-m",
        "conformance",
        "check",
        "--backend",
        backend,
        "--examples",
        "1",
        "--json",
    ]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, {cell["case"]: cell["status"] for cell in json.loads(done.stdout)["cells"]}


def test_the_page_shows_the_file_and_the_file_is_short() -> None:
    text = EXAMPLE.read_text()
    assert text.rstrip() in (DOCS / "adapters.md").read_text()
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 40


def test_the_example_conforms(tmp_path: Path) -> None:
    (tmp_path / EXAMPLE.name).write_text(EXAMPLE.read_text())
    code, cells = check(tmp_path, "numpy_engine:NumpyEngine")
    assert code == 0
    assert {case for case, status in cells.items() if status == "pass"} >= {
        "load/matrix",
        "reference/whole",
        "window/local-prefill",
    }


def test_the_example_with_the_other_releases_window_does_not_conform(tmp_path: Path) -> None:
    broken = EXAMPLE.read_text().replace("back > spec.window_size", "back >= spec.window_size")
    (tmp_path / EXAMPLE.name).write_text(broken)
    code, cells = check(tmp_path, "numpy_engine:NumpyEngine")
    assert code == 1
    assert cells["window/local-prefill"] == "fail"
    assert cells["window/global-prefill"] == "pass"
