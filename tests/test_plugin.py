"""The plugin in pytest runs of its own, on toys: the toy is the reference too, so that nothing big is started."""

from __future__ import annotations

import glob
import json
import re
import sys
from importlib import resources
from typing import Any

import jsonschema
import pytest

from tests.conftest import ROOT
from tests.workers.test_host import SCRIPT

pytest_plugins = ["pytester"]

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
    return Plan((Matches("reference", trial.drawn),), (Witness("something was fed", trial.drawn.width == 12),))


@case("toy/decode", law="decode equals the whole sequence", draws=rows, needs={"decode"})
def decode(trial):
    steps = trial.drawn.token_by_token(4)
    claims = (Agree("whole: decode", steps, trial.drawn), Matches("reference: decode", steps))
    return Plan(claims, (Witness("it was split", len(steps.chunks) > 1),))


def test_an_ordinary_test():
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs pytest on CASES in a process of its own."""
    monkeypatch.setenv("CONFORMANCE_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    (pytester.path / "tests").symlink_to(ROOT / "tests")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_toy=CASES)

    def run(*arguments: str, backends: tuple[str, ...] = ()) -> pytest.RunResult:
        chosen = [text for name in backends for text in ("--backend", f"tests.toys:{name}")]
        return pytester.runpytest_subprocess("test_toy.py", "-W", "error", *chosen, *arguments)

    return run


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
    """Numbers that depend on what was drawn, and on the last bits of a sine, as N."""
    line = re.sub(r"\[1, (\d+), \d+\]", r"[1, \1, V]", line)
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
        "(1 of 2 claims failed)",
    ),
    ("toy/whole", COMMAND): (
        "error",
        "reference: error: protocol: printed 'loading shard 1 of 2 …' to stdout, which belongs to the protocol "
        "(1 of 1 claims failed)",
    ),
    ("toy/whole", "LastToken"): (
        "fail",
        "reference: divergent, error / noise N, max abs N, 1 of 12 positions (1 of 1 claims failed)",
    ),
    ("toy/decode", "Forgetful"): (
        "fail",
        "whole: decode: divergent, error / noise N, max abs N, 8 of 12 positions (2 of 2 claims failed)",
    ),
}


def test_right_and_broken_implementations(run: Any, pytester: pytest.Pytester) -> None:
    names = ("Toy", "Loud", "Whole", "Unable", *(name for _, name in RED if name != COMMAND))
    result = run(
        *("--json", "report.json", "--release", "2604", "--examples", "1", "--shrink", "0"),
        *("--backend", COMMAND),
        backends=names,
    )
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
    # One ordinary test in the same file passes beside them.
    judged = len(green)
    result.assert_outcomes(passed=judged + 1, skipped=3, failed=len(cells) - judged - 3)


def test_the_first_bad_position_is_named_with_its_place_in_the_window(
    run: Any, pytester: pytest.Pytester
) -> None:
    arguments = ("--json", "report.json", "--release", "2604", "--examples", "1", "--shrink", "0")
    run("-k", "whole", *arguments, backends=("LastToken",))
    (cell,) = report_of(pytester)["cells"]
    finding = cell["findings"][0]
    window = int(re.search(r"W (\d+)", finding["model"])[1])  # type: ignore[index]
    assert finding["verdict"]["first_bad"] == [0, 11]
    assert cell["lines"][1].startswith(f"where: first bad at row 0 position 11 (W{11 - window:+d}): ")


def test_a_silent_worker_does_not_hang_the_run(run: Any, pytester: pytest.Pytester) -> None:
    arguments = ("--json", "report.json", "--release", "4k", "--examples", "1", "--shrink", "0")
    result = run("-k", "whole", "--timeout-run", "3", *arguments, backends=("Silent",))
    assert result.ret == 1
    (cell,) = report_of(pytester)["cells"]
    assert cell["lines"][0] == (
        "what: toy/whole on tests.toys:Silent, release 4k: reference: error: hung: gave no answer to run "
        "within 3 s and was killed (1 of 1 claims failed)"
    )


def test_a_reference_that_fails(run: Any, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace("toys:Toy", "toys:Raises"))
    result = run("--json", "report.json", "--release", "2604", "--examples", "1", backends=("Toy",))
    assert result.ret == 1
    assert "Traceback" not in result.stdout.str()
    reasons = {cell["status"]: cell["reason"] for cell in report_of(pytester)["cells"]}
    assert reasons == {"error": "the reference failed: RuntimeError: no kernel for head size 24"}


def test_with_xdist_the_report_is_the_same(run: Any, pytester: pytest.Pytester) -> None:
    arguments = ("--json", "report.json", "--examples", "1", "--shrink", "0")
    backends = ("Toy", "Lifted")
    alone = run(*arguments, backends=backends)
    report = report_of(pytester)
    (pytester.path / "report.json").unlink()
    shared = run(*arguments, "-n", "2", backends=backends)
    assert (alone.ret, shared.ret) == (1, 1)
    spread = report_of(pytester)
    assert spread["summary"] == report["summary"]
    assert set(spread["backends"]) == set(report["backends"]) == {f"tests.toys:{name}" for name in backends}
    mine, theirs = cells_of(report), cells_of(spread)
    assert mine.keys() == theirs.keys()
    for key, cell in mine.items():
        assert {k: v for k, v in theirs[key].items() if k not in ("lines", "bundle")} == {
            k: v for k, v in cell.items() if k not in ("lines", "bundle")
        }


BAD_INPUT = {
    "an unknown backend": (
        ["--backend", "refrence"],
        "backend = 'refrence', but should be one of reference, plamo3-2604, plamo3-4k, vllm, module:Class, "
        "or a worker's command; did you mean reference?",
    ),
    "no examples": (["--examples", "0"], "--examples = 0, but should be 1 or more"),
    "a class that does not exist": (
        ["--backend", "tests.toys:Giraffe"],
        "backend tests.toys:Giraffe could not be started: module tests.toys has no class 'Giraffe'",
    ),
    "a worker that dies at start": (
        ["--backend", "tests.toys:Stillborn"],
        "backend tests.toys:Stillborn could not be started: exited with code 1 during hello; last words: "
        "libmagic.so: cannot open shared object file",
    ),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line(name: str, run: Any, pytester: pytest.Pytester) -> None:
    arguments, message = BAD_INPUT[name]
    result = run(*arguments, "--json", "report.json", backends=("Toy",))
    assert result.ret == 2
    assert result.stderr.str() == f"conformance: {message}\n"
    assert "collected" not in result.stdout.str()
    assert not (pytester.path / "report.json").exists()


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
    assert "conform" not in "".join(result.outlines[3:])
