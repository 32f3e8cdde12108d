"""Cases as records: the decorator, trials, and the list that is read without running anything."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

import conformance
from conformance import case as module
from conformance.case import Case, Trial, case, case_directory, known_cases
from conformance.checkpoints.layout import Layout
from conformance.claims import Plan
from conformance.families import FAMILIES, family_of
from conformance.families.base import Spec
from conformance.feeds import CAPABILITIES, DTYPES
from conformance.strategies import feeds
from tests.cases.chapters import all_cases
from tests.conftest import ROOT


def rows(spec: Spec) -> object:
    return feeds(spec, min_width=3, max_width=3)


def plan(trial: Trial) -> Plan:
    return Plan((), ())


class TestTheDecorator:
    def test_a_plan_becomes_a_case(self) -> None:
        made = case("chapter/name", law="a law", draws=rows)(plan)  # type: ignore[arg-type]
        assert made == Case(id="chapter/name", law="a law", plan=plan, draws=rows)  # type: ignore[arg-type]
        assert (made.needs, made.dtypes, made.specs) == (frozenset(), frozenset({"float32"}), {})
        assert (made.families, made.variants, made.fixed, made.own_code) == (None, None, None, False)

    def test_what_it_is_given_is_kept(self) -> None:
        def nothing(*_: object) -> tuple[()]:
            return ()

        specs = {"layers": "local"}
        made = case(
            "chapter/name",
            law="a law",
            draws=rows,  # type: ignore[arg-type]
            needs={"decode"},
            dtypes={"bfloat16"},
            specs=specs,
            families=("plamo3",),
            variants=nothing,
            fixed=nothing,
            own_code=True,
        )(plan)
        assert made.needs == frozenset({"decode"})
        assert made.dtypes == frozenset({"bfloat16"})
        assert (made.specs, made.families, made.own_code) == (specs, ("plamo3",), True)
        assert made.specs is not specs
        assert made.variants is nothing
        assert made.fixed is nothing

    def test_a_case_is_frozen(self) -> None:
        made = case("chapter/name", law="a law", draws=rows)(plan)  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            made.law = "another"  # type: ignore[misc]


class TestTrials:
    def test_a_trial_has_the_release_of_its_model(self, spec: Spec) -> None:
        assert Trial(spec, 3, None).release == "2604"
        assert Trial(replace(spec, rope_scaling_factor=1.0), 3, None).release == "4k"  # type: ignore[type-var]

    def test_a_trial_in_a_few_words(self, spec: Spec) -> None:
        assert Trial(spec, 3, None).describe() == (
            "2604: 2 layers, D 48, heads 6/2, d 16, F 56, W 4, V 97, tied, seed 3"
        )

    def test_a_plain_trial_is_stored_plainly(self, spec: Spec) -> None:
        trial = Trial(spec, 3, None)
        assert (trial.layout, trial.variant) == (Layout(), "")


class TestTheChapters:
    def test_they_lie_beside_the_package_in_a_checkout(self) -> None:
        assert case_directory() == ROOT / "cases"

    def test_they_lie_in_the_package_when_it_is_installed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "conformance"
        (package / "cases").mkdir(parents=True)
        monkeypatch.setattr(conformance, "__file__", str(package / "__init__.py"))
        assert case_directory() == package / "cases"

    def test_the_list_says_what_the_chapters_hold(self) -> None:
        """It is read from source, so nothing keeps the two together but this."""
        assert known_cases() == {case_id: what.law for case_id, what in all_cases().items()}

    def test_listing_runs_no_code_of_theirs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        chapter = (
            'raise SystemExit\n\n\n@case("some/law", needs={"decode"}, law="holds")\ndef law(trial): ...\n'
        )
        (tmp_path / "test_some.py").write_text(chapter)
        (tmp_path / "helper.py").write_text('case("not/one", law="no")')
        monkeypatch.setattr(module, "case_directory", lambda: tmp_path)
        assert known_cases() == {"some/law": "holds"}

    def test_ids_are_the_chapter_and_a_name(self) -> None:
        for file in case_directory().glob("test_*.py"):
            chapter = file.stem.removeprefix("test_")
            own = [case_id for case_id in known_cases() if case_id.startswith(f"{chapter}/")]
            assert file.read_text().count("\n@case(\n") == len(own)
        assert all(re.fullmatch(r"[a-z]+/[a-z0-9-]+", case_id) for case_id in known_cases())

    @pytest.mark.parametrize("case_id", all_cases())
    def test_what_a_case_declares_exists(self, case_id: str) -> None:
        what = all_cases()[case_id]
        assert what.needs <= set(CAPABILITIES)
        assert what.dtypes
        assert what.dtypes <= set(DTYPES)
        assert set(what.families or ()) <= set(FAMILIES)
        for name in what.families or FAMILIES:
            for release in family_of(name).releases:
                family_of(name).specs(release.name, {}, **what.specs).validate()

    @pytest.mark.parametrize("law", known_cases().values())
    def test_a_law_is_one_sentence_for_people(self, law: str) -> None:
        assert law[0].islower()
        assert "\n" not in law
        assert not law.endswith(".")
        assert len(law) <= 110
