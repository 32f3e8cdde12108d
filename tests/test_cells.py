"""Cells: what the trials of a case amount to, and what known differences may explain."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.backends.registry import Backend
from conformance.case import Case, Trial, case
from conformance.cells import Cell, CellResult, inapplicable, judge
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint
from conformance.claims import Agree, Matches, MatchesOrRefuses, Plan, Witness
from conformance.deviations import Deviation, Prediction, Refusal
from conformance.errors import Unsupported
from conformance.families.base import Spec, Variant
from conformance.faults import faults_of, find
from conformance.feeds import Crop, Feed, Forward
from conformance.strategies import feeds
from conformance.workers.host import Hello
from tests import toys
from tests.inline import InlineSession

BACKEND = Backend(name="mine", title="under test")
SEEN = Witness("the sequence was split", True)

Judge = Callable[..., CellResult]


def law(plan: Callable[[Trial], Plan], **how: Any) -> Case:
    """A case that feeds rows of 12 tokens."""
    how = {"draws": lambda spec: feeds(spec, min_width=12, max_width=12), "law": "a law", **how}
    return case("chapter/law", **how)(plan)


def decode(trial: Trial) -> Plan:
    """The reference and the whole sequence, against one token at a time."""
    steps = trial.drawn.token_by_token(4)
    return Plan(
        (
            Matches("reference: whole", trial.drawn),
            Matches("reference: decode", steps),
            Agree("whole: decode", steps, trial.drawn),
        ),
        (SEEN,),
    )


def cell_of(what: Case, release: str = "2604", backend: Backend = BACKEND) -> Cell:
    return Cell(what, backend, "plamo3", release)


def hello_of(adapter: toys.Toy) -> Hello:
    return Hello(
        adapter.releases,
        frozenset(adapter.capabilities),
        tuple(adapter.dtypes),
        adapter.limits,
        versions=adapter.versions(),
    )


def common(number: int) -> dict[str, Any]:
    return {
        "backend": "mine",
        "release": "2604",
        "evidence": "docs/plamo3.md §7",
        "date": datetime.date(2026, 1, 31),
        "source": f"mine.toml entry {number}",
    }


def prediction(
    *faults: str, number: int = 1, versions: tuple[tuple[str, str], ...] = (("numpy", ">=1"),)
) -> Prediction:
    bank = faults_of("plamo3").FAULTS
    found = tuple(find(bank, name) for name in faults)
    return Prediction(**common(number), what="; ".join(faults), faults=found, versions=versions)


def refusal(*claims: str) -> Refusal:
    return Refusal(
        **common(1),
        what="it has no kernel",
        case=("chapter/law",),
        claims=claims,
        error="failed: no kernel*",
        versions=(("numpy", ">=1"),),
    )


@pytest.fixture
def verdict_of(tmp_path: Path) -> Judge:
    """Judges a toy by a case."""

    def judged(
        toy: type[toys.Toy],
        what: Case,
        *deviations: Deviation,
        examples: int = 2,
        brought: Checkpoint | None = None,
    ) -> CellResult:
        adapter = toy({})
        session = InlineSession(toys.Toy({}), {"mine": adapter})
        return judge(
            session,
            cell_of(what),
            hello_of(adapter),
            deviations,
            examples=examples,
            checkpoints=tmp_path,
            brought=brought,
        )

    return judged


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Judges the reference with faults by a case, on the reference."""
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    oracle = ReferenceAdapter({})

    def judged(
        faults: tuple[str, ...],
        *deviations: Deviation,
        versions: dict[str, str] | None = None,
        what: Case | None = None,
    ) -> CellResult:
        adapter = FaultyAdapter({"faults": faults})
        session = InlineSession(oracle, {"mine": adapter})
        given = adapter.versions() if versions is None else versions
        hello = Hello(("2604",), adapter.capabilities, adapter.dtypes, {}, versions=given)
        cell = cell_of(what or law(decode))
        return judge(session, cell, hello, deviations, examples=2, checkpoints=checkpoints)

    return judged


class TestWhatACellAmountsTo:
    def test_a_pass(self, verdict_of: Judge) -> None:
        result = verdict_of(toys.Toy, law(decode))
        assert (result.status, result.reason) == ("pass", "")
        assert (result.trials, result.claims) == (2, 6)
        assert result.witnesses == {"the sequence was split": 2}
        assert result.grade == "rounding"
        assert 0 < result.worst <= 1
        assert (result.findings, result.explained) == ([], {})

    def test_a_failure(self, verdict_of: Judge) -> None:
        result = verdict_of(toys.Forgetful, law(decode))
        assert (result.status, result.reason) == ("fail", "4 of 6 claims failed")
        assert result.grade == "divergent"
        assert [finding.outcome.label for finding in result.findings] == [
            "reference: decode",
            "whole: decode",
        ] * 2
        assert result.worst == max(finding.outcome.verdict.ratio for finding in result.findings)
        assert all(finding.trial.release == "2604" for finding in result.findings)

    @pytest.mark.parametrize(
        ("toy", "problem"),
        [
            (toys.NotFinite, "logits[0, 2, 7] = nan, but should be finite (1 of 12 positions)"),
            (toys.Half, "logits: dtype = float16, but should be float32 or float64"),
            (toys.Raises, "failed: no kernel for head size 24"),
        ],
    )
    def test_an_error(self, verdict_of: Judge, toy: type[toys.Toy], problem: str) -> None:
        result = verdict_of(toy, law(decode), examples=1)
        assert (result.status, result.reason) == ("error", "3 of 3 claims failed")
        assert result.grade == "error"
        assert result.findings[0].outcome.verdict.problem.splitlines()[0] == problem

    def test_a_missing_witness_is_an_error_though_all_claims_hold(self, verdict_of: Judge) -> None:
        unseen = Witness("the window was crossed", False)
        result = verdict_of(toys.Toy, law(lambda trial: replace(decode(trial), witnesses=(SEEN, unseen))))
        assert (result.status, result.reason) == ("error", "no witness: the window was crossed")
        assert result.witnesses == {"the sequence was split": 2, "the window was crossed": 0}

    def test_a_witness_that_is_missing_in_one_trial(self, verdict_of: Judge) -> None:
        trials: list[Trial] = []

        def sometimes(trial: Trial) -> Plan:
            trials.append(trial)
            return replace(decode(trial), witnesses=(Witness("twice", len(trials) > 1),))

        result = verdict_of(toys.Toy, law(sometimes))
        assert (result.status, result.reason, result.witnesses) == (
            "error",
            "no witness: twice",
            {"twice": 1},
        )

    @pytest.mark.parametrize("empty", ["claims", "witnesses"])
    def test_a_plan_without_claims_or_witnesses_is_an_error(self, verdict_of: Judge, empty: str) -> None:
        result = verdict_of(toys.Toy, law(lambda trial: replace(decode(trial), **{empty: ()})))
        assert (result.status, result.reason) == (
            "error",
            "a case needs at least one claim and one witness",
        )

    def test_refusals_are_counted(self, verdict_of: Judge) -> None:
        def crop(trial: Trial) -> Plan:
            cropped = replace(trial.drawn, steps=(Forward(8), Crop(3), Forward(4)))
            return Plan((Matches("whole", trial.drawn), MatchesOrRefuses("crop", cropped)), (SEEN,))

        assert verdict_of(toys.Refuses, law(crop)).refused == 2
        assert verdict_of(toys.Refuses, law(crop)).status == "pass"
        assert verdict_of(toys.Toy, law(crop)).refused == 0

    def test_a_brought_checkpoint_is_judged_instead_of_drawn_models(
        self, verdict_of: Judge, checkpoint: Checkpoint, tmp_path: Path
    ) -> None:
        result = verdict_of(toys.Forgetful, law(decode), brought=checkpoint)
        assert result.status == "fail"
        assert {finding.checkpoint for finding in result.findings} == {checkpoint}
        assert list(tmp_path.iterdir()) == []


class TestNotApplicable:
    whole = Hello(("2604",), frozenset(), ("float32",), {"head_dim": {"one_of": [24]}})

    def test_a_capability(self) -> None:
        assert inapplicable(cell_of(law(decode, needs={"decode", "crop"})), self.whole) == "no crop, decode"

    def test_a_dtype(self) -> None:
        what = law(decode, dtypes={"float32", "bfloat16"})
        assert inapplicable(cell_of(what), self.whole) == "no bfloat16"

    def test_a_law_about_a_releases_own_code(self) -> None:
        what = law(decode, own_code=True)
        assert inapplicable(cell_of(what), self.whole) == "speaks of the release's own code"
        own = replace(BACKEND, release_code="2604")
        assert inapplicable(cell_of(what, "2604", own), self.whole) is None
        assert inapplicable(cell_of(what, "4k", own), self.whole) == "speaks of the release's own code"

    def test_a_fixed_model_beyond_the_limits(self, spec: Spec) -> None:
        what = law(decode, fixed=lambda family, release: (Variant("small", spec, Layout()),))
        assert inapplicable(cell_of(what), self.whole) == "head_dim 16 is outside its limit: one_of [24]"

    def test_nothing_in_the_way(self) -> None:
        assert inapplicable(cell_of(law(decode)), self.whole) is None

    def test_the_cell_says_why_and_runs_nothing(self, verdict_of: Judge, tmp_path: Path) -> None:
        assert verdict_of(toys.Whole, law(decode, needs={"decode"})) == CellResult("n/a", "no decode")
        assert list(tmp_path.iterdir()) == []

    def test_no_trial_is_no_pass(self, verdict_of: Judge) -> None:
        nothing = law(decode, fixed=lambda family, release: ())
        assert verdict_of(toys.Toy, nothing) == CellResult("n/a", "no trial for this release")

    def test_an_engine_that_declines_every_trial(self, verdict_of: Judge) -> None:
        result = verdict_of(toys.Unable, law(decode))
        assert (result.status, result.reason) == ("n/a", "no sequences above 8 tokens")

    def test_an_engine_that_declines_some_trials_says_so_though_it_passes(self, verdict_of: Judge) -> None:
        result = verdict_of(Moody, law(decode))
        assert (result.status, result.trials) == ("pass", 1)
        assert result.reason == "1 of 2 trials declined: not today"

    def test_a_declined_trial_does_not_hide_a_missing_witness(self, verdict_of: Judge) -> None:
        unseen = (Witness("the window was crossed", False),)
        result = verdict_of(Moody, law(lambda trial: replace(decode(trial), witnesses=unseen)))
        assert (result.status, result.reason) == ("error", "no witness: the window was crossed")


class Moody(toys.Toy):
    """Declines its first run."""

    asked = 0

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        self.asked += 1
        if self.asked == 1:
            raise Unsupported("not today")
        return super().run(model, feed)


class TestPredictions:
    """The reference with faults as the engine, judged with entries that name some of them."""

    known = ("window-one-short",)

    def test_the_recorded_fault_is_known(self, faulty: Judge) -> None:
        recorded = prediction("window-one-short")
        result = faulty(self.known, recorded)
        assert (result.status, result.reason) == ("known", "window-one-short")
        assert (result.findings, result.gone, result.applied) == ([], [], (recorded,))
        assert list(result.explained) == [recorded]
        ratio = result.explained[recorded]
        assert ratio is not None
        assert 0 < ratio < 8 < 1000 < result.worst  # noqa: PLR0133
        assert result.grade == "divergent"

    def test_a_second_fault_in_the_same_place_is_found(self, faulty: Judge) -> None:
        result = faulty((*self.known, "amplitude-missing"), prediction("window-one-short"))
        assert (result.status, result.reason) == ("fail", "4 of 6 claims failed")
        predicted = result.findings[0].outcome.predicted
        assert predicted is not None
        assert predicted.residual.ratio > 100
        assert result.explained == {}

    def test_a_repaired_engine_is_told(self, faulty: Judge) -> None:
        result = faulty((), prediction("window-one-short"))
        assert (result.status, result.reason) == (
            "fail",
            "deviation gone: mine.toml entry 1 (window-one-short) does not show in 'reference: whole'; "
            "remove it",
        )
        assert result.findings == []

    def test_several_entries_hold_at_once(self, faulty: Judge) -> None:
        entries = (prediction("window-one-short"), prediction("decode-position-one-late", number=2))
        result = faulty((*self.known, "decode-position-one-late"), *entries)
        assert (result.status, result.reason) == ("known", "window-one-short; decode-position-one-late")
        assert set(result.explained) == set(entries)

    def test_one_of_several_that_is_gone_is_told(self, faulty: Judge) -> None:
        entries = (prediction("window-one-short"), prediction("decode-position-one-late", number=2))
        result = faulty(self.known, *entries)
        assert (result.status, result.reason) == (
            "fail",
            "deviation gone: mine.toml entry 2 (decode-position-one-late) does not show in "
            "'reference: decode'; remove it",
        )

    def test_findings_do_not_hide_what_is_gone(self, faulty: Judge) -> None:
        """The window is right in prefill, and decode is wrong in another way."""
        result = faulty(("decode-position-one-late",), prediction("window-one-short"))
        assert (result.status, result.reason) == (
            "fail",
            "4 of 6 claims failed; deviation gone: mine.toml entry 1 (window-one-short) does not show in "
            "'reference: whole'; remove it",
        )

    def test_an_entry_that_can_show_nowhere_here_is_none_of_this_cells_business(self, faulty: Judge) -> None:
        result = faulty((), prediction("position-ids-ignored"))
        assert (result.status, result.reason, result.applied) == ("pass", "", ())

    def test_an_entry_of_other_versions_explains_nothing_and_says_so(self, faulty: Judge) -> None:
        recorded = prediction("window-one-short", versions=(("engine", ">=3"),))
        result = faulty(self.known, recorded, versions={"engine": "2.1"})
        assert (result.status, result.reason) == (
            "fail",
            "4 of 6 claims failed; mine.toml entry 1 was written for engine >=3, but 2.1 runs",
        )
        assert result.findings[0].outcome.predicted is None
        assert faulty((), recorded, versions={"engine": "2.1"}).status == "pass"
        assert faulty(self.known, recorded, versions={"engine": "3.0"}).status == "known"

    def test_it_is_silent_where_it_could_not_have_explained(self, faulty: Judge) -> None:
        recorded = prediction("position-ids-ignored", versions=(("engine", ">=3"),))
        assert faulty(self.known, recorded, versions={}).reason == "4 of 6 claims failed"

    def test_no_entry_explains_a_missing_witness(self, faulty: Judge) -> None:
        unseen = (Witness("the window was crossed", False),)
        what = law(lambda trial: replace(decode(trial), witnesses=unseen))
        result = faulty(self.known, prediction("window-one-short"), what=what)
        assert (result.status, result.reason) == ("error", "no witness: the window was crossed")


class TestRefusals:
    def test_the_error_that_it_names_is_known(self, verdict_of: Judge) -> None:
        entry = refusal("*: whole", "*: decode")
        result = verdict_of(toys.Raises, law(decode), entry)
        assert (result.status, result.reason) == ("known", "it has no kernel")
        assert (result.findings, result.explained) == ([], {entry: None})

    def test_only_the_named_claims_are_explained(self, verdict_of: Judge) -> None:
        result = verdict_of(toys.Raises, law(decode), refusal("whole: *"))
        assert (result.status, result.reason) == ("error", "4 of 6 claims failed")
        assert {f.outcome.label for f in result.findings} == {"reference: whole", "reference: decode"}

    def test_another_error_is_not_explained(self, verdict_of: Judge) -> None:
        result = verdict_of(toys.NotFinite, law(decode), refusal("*"))
        assert (result.status, result.reason) == ("error", "6 of 6 claims failed")

    def test_values_are_not_explained(self, verdict_of: Judge) -> None:
        result = verdict_of(toys.Forgetful, law(decode), replace(refusal("*"), error="*"))
        assert (result.status, result.reason) == ("fail", "4 of 6 claims failed")

    @pytest.mark.parametrize(
        ("toy", "pattern"),
        [(toys.Toy, "*: decode"), (toys.Raises, "refrence: *")],
    )
    def test_one_that_no_longer_happens_fails(
        self, verdict_of: Judge, toy: type[toys.Toy], pattern: str
    ) -> None:
        patterns = (pattern,) if toy is toys.Toy else ("*", pattern)
        result = verdict_of(toy, law(decode), refusal(*patterns))
        assert (result.status, result.reason) == (
            "fail",
            f"deviation gone: {pattern!r} of mine.toml entry 1 no longer happens; remove it",
        )

    def test_one_of_other_models_has_no_say(self, verdict_of: Judge) -> None:
        """It explains nothing of the drawn models, and is not missed there."""
        other = replace(refusal("*"), models=(("head_dim", (("min", 1000),)),))
        assert verdict_of(toys.Toy, law(decode), other).status == "pass"
        assert verdict_of(toys.Raises, law(decode), other).status == "error"
        these = replace(refusal("*"), models=(("head_dim", (("max", 1000),)),))
        assert verdict_of(toys.Toy, law(decode), these).status == "fail"
        assert verdict_of(toys.Raises, law(decode), these).status == "known"

    def test_one_of_another_case_has_no_say(self, verdict_of: Judge) -> None:
        other = replace(refusal("*"), case=("chapter/other",))
        assert verdict_of(toys.Toy, law(decode), other).status == "pass"
        assert verdict_of(toys.Raises, law(decode), other).status == "error"

    def test_one_of_other_versions_says_so(self, verdict_of: Judge) -> None:
        other = replace(refusal("*"), versions=(("engine", "<1"),))
        assert verdict_of(toys.Raises, law(decode), other).reason == (
            "6 of 6 claims failed; mine.toml entry 1 was written for engine <1, but none of it runs"
        )
        assert verdict_of(toys.Toy, law(decode), other).status == "pass"


@pytest.mark.parametrize(
    ("release_code", "release", "label"),
    [(None, "2604", "mine-2604"), ("2604", "2604", "mine"), ("2604", "4k", "mine-4k")],
)
def test_labels(release_code: str | None, release: str, label: str) -> None:
    backend = replace(BACKEND, release_code=release_code)
    assert cell_of(law(decode), release, backend).label == label
