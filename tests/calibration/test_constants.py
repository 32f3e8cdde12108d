"""ROUNDING and DRIFT are the only thresholds: no backend, release or case has one of its own."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COMPARE = sorted((ROOT / "conformance" / "compare").glob("*.py"))
# The judging code and the cases; the study measures, and its bounds grade nothing.
JUDGING = sorted(
    path
    for directory in ("conformance", "cases")
    for path in (ROOT / directory).rglob("*.py")
    if "calibration" not in path.parts and "standin" not in path.parts
)
TOLERANT = re.compile(r"(^|_)(r|a)?tol(erance)?s?($|_)|allclose|isclose|almost|approx$", re.IGNORECASE)


def names(tree: ast.AST) -> Iterator[str]:
    """Every identifier: names, attributes, arguments, keywords."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def number(node: ast.AST) -> float | None:
    """The number that a literal stands for."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)
    return None


def constants(tree: ast.Module) -> dict[str, float]:
    """Numbers with a name of their own at the top of a module."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and number(node.value) is not None:
            found.update(
                {target.id: number(node.value) for target in node.targets if isinstance(target, ast.Name)}
            )
    return {name: value for name, value in found.items() if value is not None}


def test_compare_has_two_constants() -> None:
    found = {name for path in COMPARE for name in constants(ast.parse(path.read_text()))}
    assert found == {"ROUNDING", "DRIFT"}


@pytest.mark.parametrize("path", COMPARE, ids=lambda path: path.name)
def test_compare_holds_nothing_against_another_number_than_zero(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            literals = {number(side) for side in (node.left, *node.comparators)} - {None}
            assert literals <= {0.0}, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("path", JUDGING, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_compared_within_a_tolerance(path: Path) -> None:
    assert not [name for name in names(ast.parse(path.read_text())) if TOLERANT.search(name)]


def test_the_two_are_defined_once() -> None:
    places = {
        (path.name, name)
        for path in JUDGING
        for name in constants(ast.parse(path.read_text()))
        if name in ("ROUNDING", "DRIFT")
    }
    assert places == {("verdict.py", "ROUNDING"), ("verdict.py", "DRIFT")}


def test_a_ratio_is_held_against_no_number() -> None:
    for path in (path for path in JUDGING if "report" not in path.parts):  # reports choose digits by size
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                sides = (node.left, *node.comparators)
                about_ratios = any("ratio" in name for side in sides for name in names(side))
                literals = {number(side) for side in sides} - {None, 0.0}
                assert not (about_ratios and literals), f"{path}:{node.lineno}"


def test_only_published_figures_are_bounds_of_their_own() -> None:
    users = {
        path.name for path in (ROOT / "cases").glob("*.py") if "Differ" in names(ast.parse(path.read_text()))
    }
    assert users == {"test_published.py"}


def test_a_deviation_has_no_number() -> None:
    for path in (ROOT / "cases" / "deviations").glob("*.toml"):
        for entry in tomllib.loads(path.read_text())["deviation"]:
            assert not [key for key, value in entry.items() if isinstance(value, int | float)]


class TestThisTest:
    @pytest.mark.parametrize(
        "name", ["rtol", "atol", "TOL", "bf16_tol", "tolerance", "Tolerances", "isclose"]
    )
    def test_it_knows_a_tolerance_by_its_name(self, name: str) -> None:
        assert TOLERANT.search(name)

    @pytest.mark.parametrize("name", ["total", "atoll", "tolist", "protocol", "stole"])
    def test_it_leaves_other_names_alone(self, name: str) -> None:
        assert not TOLERANT.search(name)
