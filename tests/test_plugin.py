"""The plugin in pytest runs of its own, on toys: the reference is a toy too, so nothing big is started."""

from __future__ import annotations

import glob
import json
import re
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.backends import registry
from tests.conftest import ROOT
from tests.workers.test_host import SCRIPT

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]

CONFTEST = """
from dataclasses import replace
from conformance.backends import registry

registry._GENERIC = tuple(
    replace(b, adapter="tests.toys:Toy", options={"paths": ["."]}) if b.name == "reference" else b
    for b in registry._GENERIC
)
"""
CASES = """
from dataclasses import replace
from conformance.case import case
from conformance.claims import Agree, Matches, MatchesOrRefuses, Plan, Witness
from conformance.feeds import Crop, Forward
from conformance.strategies import feeds


def rows(spec):
    return feeds(spec, min_width=12, max_width=12)


@case("toy/whole", law="a whole sequence gives the reference's logits", draws=rows)
def whole(trial):
    fed = Witness("something was fed", trial.drawn.width == 12)
    return Plan((Matches("reference", trial.drawn),), (fed,))


@case("toy/decode", law="decode equals the whole sequence", draws=rows, needs={"decode"})
def decode(trial):
    steps = trial.drawn.token_by_token(4)
    claims = (Agree("whole: decode", steps, trial.drawn), Matches("reference: decode", steps))
    return Plan(claims, (Witness("it was split", len(steps.chunks) > 1),))


def test_an_ordinary_test():
    pass
"""


@pytest.fixture
def directory(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory with CASES, the toys, and a cache of its own."""
    monkeypatch.setenv("CONFORMANCE_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    (pytester.path / "tests").symlink_to(ROOT / "tests")
    pytester.makepyfile(test_toy=CASES)
    return pytester


@pytest.fixture
def run(directory: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest on CASES, in this process because that is quicker; workers are processes all the same."""

    def run(*arguments: str, backends: tuple[str, ...] = (), reference: str = "Toy") -> pytest.RunResult:
        with monkeypatch.context() as patch:
            patch.setattr(registry, "_GENERIC", registry._GENERIC)
            directory.makeconftest(CONFTEST.replace("toys:Toy", f"toys:{reference}"))
            return directory.runpytest_inprocess(*command(arguments, backends))

    return run


def command(arguments: Sequence[str], backends: Sequence[str]) -> list[str]:
    chosen = [text for name in backends for text in ("--backend", f"tests.toys:{name}")]
    return ["test_toy.py", "-W", "error", "--json", "report.json", "--shrink", "0", *chosen, *arguments]


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report = json.loads((pytester.path / "report.json").read_text())
    schema = resources.files("conformance.report").joinpath("report.schema.json").read_text()
    jsonschema.validate(report, json.loads(schema))
    return report  # type: ignore[no-any-return]


def cells_of(report: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(case, backend's class, release) → cell."""
    return {
        (cell["case"], cell["backend"].removeprefix("tests.toys:"), cell["release"]): cell
        for cell in report["cells"]
    }


def without_figures(line: str) -> str:
    """Numbers that depend on what was drawn, on how far it was shrunk, and on last bits, as words."""
    line = re.sub(r"\[1, (\d+), \d+\]", r"[1, \1, V]", line)
    line = re.sub(r"\d+ of \d+ positions", "some positions", line) if "noise" in line else line
    return re.sub(r"(noise|abs) [\d.e+-]+", r"\1 N", line)


COMMAND = f"{sys.executable} -S {SCRIPT} prints"

# What a broken implementation is told, apart from where and how to see it again.
RED = {
    ("toy/whole", "Short"): (
        "error",
        "reference: error: logits: shape = [1, 11, V], but should be [1, 12, V] (1 of 1 claims failed)",
    ),
    ("toy/whole", "NotFinite"): (
        "error",
        "reference: error: logits[0, 2, 7] = nan, but should be finite (1 of 12 positions) "
        "(1 of 1 claims failed)",
    ),
    ("toy/whole", "Raises"): (
        "error",
        "reference: error: failed: RuntimeError: no kernel for head size 24 (1 of 1 claims failed)",
    ),
    ("toy/decode", "Mortal"): (
        "error",
        "whole: decode: error: died: exited with code 11 during run; last words: out of registers "
        "(2 of 2 claims failed)",
    ),
    ("toy/whole", COMMAND): (
        "error",
        "reference: error: protocol: printed 'loading shard 1 of 2 …' to stdout, which belongs to the "
        "protocol (1 of 1 claims failed)",
    ),
    ("toy/whole", "LastToken"): (
        "fail",
        "reference: divergent, error / noise N, max abs N, some positions (1 of 1 claims failed)",
    ),
    ("toy/decode", "Forgetful"): (
        "fail",
        "whole: decode: divergent, error / noise N, max abs N, some positions (2 of 2 claims failed)",
    ),
}


def test_right_and_broken_implementations(run: Run, pytester: pytest.Pytester) -> None:
    names = ("Toy", "Loud", "Whole", "Unable", *(name for _, name in RED if name != COMMAND))
    result = run("--release", "2604", "--examples", "1", "--backend", COMMAND, backends=names)
    assert result.ret == 1
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    report = report_of(pytester)
    cells = cells_of(report)
    statuses = {(case, name): cell["status"] for (case, name, _), cell in cells.items()}

    green = {key for key, status in statuses.items() if status == "pass"}
    assert green >= {(case, name) for case in ("toy/whole", "toy/decode") for name in ("Toy", "Loud")}
    assert green & set(RED) == set()
    assert ("toy/whole", "Forgetful") in green
    reasons = {
        (case, name): cell["reason"] for (case, name, _), cell in cells.items() if cell["status"] == "n/a"
    }
    assert reasons == {
        ("toy/decode", "Whole"): "no decode",
        ("toy/whole", "Unable"): "no sequences above 8 tokens",
        ("toy/decode", "Unable"): "no sequences above 8 tokens",
    }
    for (case, name), (status, said) in RED.items():
        cell = cells[case, name, "2604"]
        assert cell["status"] == status
        what, where, again = cell["lines"]
        assert without_figures(what) == f"what: {case} on {cell['backend']}, release 2604: {said}"
        finding = cell["findings"][0]
        assert where.startswith("where: ")
        assert where.endswith(f"{finding['text']}; {finding['model']}")
        assert again.startswith("again: ")
        result.stdout.fnmatch_lines([glob.escape(line) for line in cell["lines"]])
    result.stdout.fnmatch_lines([report["summary"], "report: report.json"])
    late = cells["toy/whole", "LastToken", "2604"]
    window = int(re.search(r"W (\d+)", late["findings"][0]["model"])[1])  # type: ignore[index]
    assert late["lines"][1].startswith(f"where: first bad at row 0 position 8 (W{8 - window:+d}): ")
    # One ordinary test in the same file passes beside them.
    judged = len(green)
    result.assert_outcomes(passed=judged + 1, skipped=3, failed=len(cells) - judged - 3)


def test_a_silent_worker_does_not_hang_the_run(run: Run, pytester: pytest.Pytester) -> None:
    arguments = ("-k", "whole", "--timeout-run", "3", "--release", "4k", "--examples", "1")
    assert run(*arguments, backends=("Silent",)).ret == 1
    (cell,) = report_of(pytester)["cells"]
    assert cell["lines"][0] == (
        "what: toy/whole on tests.toys:Silent, release 4k: reference: error: hung: gave no answer to run "
        "within 3 s and was killed (1 of 1 claims failed)"
    )


def test_a_reference_that_fails(run: Run, pytester: pytest.Pytester) -> None:
    result = run("--release", "2604", "--examples", "1", backends=("Toy",), reference="Raises")
    assert result.ret == 1
    assert "Traceback" not in result.stdout.str()
    reasons = {cell["status"]: cell["reason"] for cell in report_of(pytester)["cells"]}
    assert reasons == {"error": "the reference failed: RuntimeError: no kernel for head size 24"}


def test_with_xdist(directory: pytest.Pytester) -> None:
    directory.makeconftest(CONFTEST)
    arguments = command(["-n", "2", "--examples", "1", "-k", "whole"], ["Toy", "Lifted"])
    result = directory.runpytest_subprocess(*arguments)
    assert result.ret == 1
    report = report_of(directory)
    assert {key: cell["status"] for key, cell in cells_of(report).items()} == {
        ("toy/whole", "Toy", "2604"): "pass",
        ("toy/whole", "Toy", "4k"): "pass",
        ("toy/whole", "Lifted", "2604"): "fail",
        ("toy/whole", "Lifted", "4k"): "fail",
    }
    assert list(report["backends"]) == ["tests.toys:Toy", "tests.toys:Lifted"]
    # Cells of one backend stay in one xdist process, so one worker made all its runs.
    assert report["backends"]["tests.toys:Toy"]["seconds"]["calls"] == 2
    bundles = {Path(cell["bundle"]).parent for cell in report["cells"] if cell["bundle"]}
    assert len(bundles) == 1
    result.stdout.fnmatch_lines([report["summary"]])


def test_bad_input_is_one_line(directory: pytest.Pytester) -> None:
    """In a process of its own: pytest is left before there is a session, which pytester cannot follow.

    Other bad input is in tests/cli/test_check.py, which takes the same way.
    """
    result = directory.runpytest_subprocess(*command((), ("Stillborn",)))
    assert result.ret == 2
    assert result.stderr.str() == (
        "conformance: backend tests.toys:Stillborn could not be started: exited with code 1 during hello; "
        "last words: libmagic.so: cannot open shared object file"
    )
    assert result.stdout.str() == ""
    assert not (directory.path / "report.json").exists()


def test_a_run_without_cases_pays_for_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("conformance")}
            assert loaded == {"conformance", "conformance.plugin"}
            assert "numpy" not in sys.modules
        """
    )
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(passed=1)
    assert "conformance" not in result.stdout.str().replace("plamo-conformance", "")
