"""Cases: one law each. A case draws what it feeds and states, as claims, what must agree with what."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import conformance
from conformance.checkpoints.layout import Layout
from conformance.claims import Plan
from conformance.families.base import Spec, Variant

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Case", "Trial", "case", "case_directory", "known_cases", "load_cases"]


@dataclass(frozen=True)
class Trial:
    """What a case was given: a model, and what was drawn to feed it.

    Attributes:
        spec: the configuration.
        seed: names the weights.
        drawn: what the case's own strategy drew.
        layout: how the checkpoint is stored.
        variant: the name of the variant, where the case tries variants of a spec.
    """

    spec: Spec
    seed: int
    drawn: Any
    layout: Layout = Layout()
    variant: str = ""

    @property
    def release(self) -> str:
        """The release whose meaning the model has."""
        return self.spec.release

    def describe(self) -> str:
        """The trial in a few words."""
        return f"{self.spec.describe()}, seed {self.seed}"


@dataclass(frozen=True)
class Case:
    """One law.

    Attributes:
        id: `chapter/name`, stable: deviation files and reports refer to it.
        law: one sentence: what must agree with what.
        plan: trial → claims and witnesses.
        draws: spec → strategy of what the case feeds.
        needs: capabilities that the plan's feeds ask for.
        dtypes: dtypes that they ask for.
        specs: keyword arguments for the family's strategy of specs.
        families: families that the law speaks of; None for all.
        variants: spec → what to try instead of it, for laws about checkpoints.
        fixed: (family, release) → what to try instead of drawn specs, for published figures.
        own_code: the law speaks of the release's own code alone.
    """

    id: str
    law: str
    plan: Callable[[Trial], Plan]
    draws: Callable[[Spec], SearchStrategy[Any]]
    needs: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset({"float32"})
    specs: Mapping[str, Any] = field(default_factory=dict)
    families: tuple[str, ...] | None = None
    variants: Callable[[Spec], tuple[Variant, ...]] | None = None
    fixed: Callable[[str, str], tuple[Variant, ...]] | None = None
    own_code: bool = False


def case(
    id: str,
    *,
    law: str,
    draws: Callable[[Spec], SearchStrategy[Any]],
    needs: set[str] | frozenset[str] = frozenset(),
    dtypes: set[str] | frozenset[str] = frozenset({"float32"}),
    specs: Mapping[str, Any] | None = None,
    families: tuple[str, ...] | None = None,
    variants: Callable[[Spec], tuple[Variant, ...]] | None = None,
    fixed: Callable[[str, str], tuple[Variant, ...]] | None = None,
    own_code: bool = False,
) -> Callable[[Callable[[Trial], Plan]], Case]:
    """Make a case of a function from trials to plans; the plugin collects it."""

    def decorate(plan: Callable[[Trial], Plan]) -> Case:
        return Case(
            id=id,
            law=law,
            plan=plan,
            draws=draws,
            needs=frozenset(needs),
            dtypes=frozenset(dtypes),
            specs=dict(specs or {}),
            families=families,
            variants=variants,
            fixed=fixed,
            own_code=own_code,
        )

    return decorate


def case_directory() -> Path:
    """The directory of the chapters: inside the installed package, or beside it in a checkout."""
    package = Path(conformance.__file__).parent
    inside = package / "cases"
    return inside if inside.is_dir() else package.parent / "cases"


def load_cases() -> list[Case]:
    """Every case of the chapters, in file order; imports the chapters."""
    found: list[Case] = []
    for chapter in sorted(case_directory().glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"conformance_chapter_{chapter.stem}", chapter)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += [value for value in vars(module).values() if isinstance(value, Case)]
    return found


def known_cases() -> dict[str, str]:
    """Case id → law, read from the chapters' source: listing runs no code of theirs."""
    found: dict[str, str] = {}
    for chapter in sorted(case_directory().glob("test_*.py")):
        for call in ast.walk(ast.parse(chapter.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "case":
                laws = [k.value for k in call.keywords if k.arg == "law"]
                found[ast.literal_eval(call.args[0])] = ast.literal_eval(laws[0])
    return found
