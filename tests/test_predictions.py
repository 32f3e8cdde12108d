"""Predictions: an engine is held to the reference plus its faults, no more faults and no fewer.

Every engine here is the reference with real faults of the bank.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import (
    Agree,
    Claim,
    Matches,
    MatchesOrRefuses,
    Outcome,
    Plan,
    SameTopTokens,
    Span,
    Still,
    WindowSpan,
)
from conformance.compare.verdict import Grade, Verdict
from conformance.deviations import Prediction
from conformance.errors import Refused
from conformance.families.base import Spec
from conformance.faults import faults_of, find
from conformance.feeds import Feed, Forward, Reset
from conformance.judging import judge_plan
from conformance.predictions import (
    Predicted,
    Predictions,
    Standing,
    leaves,
    predicted_words,
    predictions_of,
    shown,
)
from conformance.runs import Runner
from tests.inline import InlineSession

BANK = faults_of("plamo3").FAULTS
ROW = (3, 1, 41, 59, 26, 53, 58, 9, 79, 32)
WHOLE = Feed(tokens=(ROW,), steps=(Forward(10),))
PADDED = Feed(tokens=(ROW, ROW[::-1]), steps=(Forward(10),), lengths=(7, 10), padding="left")
SHORT = WHOLE.first(3)


def entry(*faults: str, number: int = 1, **versions: str) -> Prediction:
    return Prediction(
        backend="mine",
        release="2604",
        faults=tuple(find(BANK, name) for name in faults),
        what=" and ".join(faults),
        evidence="docs/plamo3.md §6",
        date=datetime.date(2026, 1, 31),
        versions=tuple(versions.items()) or (("numpy", ">=1"),),
        source=f"mine.toml entry {number}",
    )


WINDOW = entry("window-one-short")
POSITIONS = entry("position-ids-ignored", number=2)


class Judge:
    """Judges claims of engines with faults on one model."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.oracle = ReferenceAdapter({})

    def session(self, engine: Any) -> InlineSession:
        return InlineSession(self.oracle, {"mine": engine})

    def __call__(self, claim: Claim, *entries: Prediction, faults: tuple[str, ...] = ()) -> Outcome:
        return self.on(FaultyAdapter({"faults": faults}), claim, *entries)

    def on(self, engine: Any, claim: Claim, *entries: Prediction) -> Outcome:
        session, plan = self.session(engine), Plan((claim,), ())
        (outcome,) = judge_plan(session, "mine", self.checkpoint, plan, Predictions(entries))
        return outcome


@pytest.fixture(scope="module")
def judge(checkpoint: Checkpoint) -> Judge:
    return Judge(checkpoint)


def standing(outcome: Outcome) -> Standing:
    assert outcome.predicted is not None
    return outcome.predicted.standing


def residual(outcome: Outcome) -> Verdict:
    assert outcome.predicted is not None
    return outcome.predicted.residual


class Relabelled(FaultyAdapter):
    """An engine that keeps K and V in BF16, and takes its sums in another order."""

    def __init__(self, relabelling: int) -> None:
        super().__init__({"faults": ["cache-bfloat16"]})
        self.relabelling = relabelling

    def run(self, model: Any, feed: Feed) -> np.ndarray:
        return self.run_in_order(model, feed, f"relabel:{self.relabelling}")


class TestStandings:
    def test_the_recorded_fault_is_known(self, judge: Judge) -> None:
        outcome = judge(Matches("reference", WHOLE), WINDOW, faults=("window-one-short",))
        assert not outcome.holds
        assert outcome.verdict.ratio > 1000
        assert standing(outcome) is Standing.KNOWN
        assert residual(outcome).grade.passes
        assert outcome.predicted is not None
        assert outcome.predicted.entries == (WINDOW,)
        assert outcome.predicted.faults == ("window-one-short",)

    @pytest.mark.parametrize("second", ["amplitude-missing", "qkv-interleaved", "window-on-global-layers"])
    def test_a_second_fault_shows(self, judge: Judge, second: str) -> None:
        faults = ("window-one-short", second)
        outcome = judge(Matches("reference", WHOLE), WINDOW, faults=faults)
        assert not outcome.holds
        assert standing(outcome) is Standing.UNMET
        assert residual(outcome).ratio > 100

    def test_another_fault_is_not_the_recorded_one(self, judge: Judge) -> None:
        outcome = judge(Matches("reference", WHOLE), WINDOW, faults=("window-one-short-in-decode",))
        assert standing(outcome) is Standing.GONE
        outcome = judge(Matches("reference", WHOLE), WINDOW, faults=("window-one-long",))
        assert standing(outcome) is Standing.UNMET

    def test_a_repaired_engine_is_noticed(self, judge: Judge) -> None:
        outcome = judge(Matches("reference", WHOLE), WINDOW)
        assert outcome.holds
        assert standing(outcome) is Standing.GONE
        assert outcome.predicted is not None
        assert outcome.predicted.gone == (WINDOW,)

    def test_where_no_fault_can_show_there_is_no_prediction(self, judge: Judge) -> None:
        assert judge(Matches("reference", SHORT), WINDOW, faults=("window-one-short",)).predicted is None
        assert judge(Matches("reference", WHOLE), POSITIONS).predicted is None

    def test_elsewhere_another_fault_fails_plainly(self, judge: Judge) -> None:
        outcome = judge(Matches("reference", SHORT), WINDOW, faults=("rope-missing",))
        assert (outcome.holds, outcome.predicted) == (False, None)

    def test_beside_a_fault_that_rounds_a_second_one_shows(self, judge: Judge) -> None:
        claim, recorded = Matches("reference", WHOLE), entry("cache-bfloat16")
        outcome = judge.on(Relabelled(22), claim, recorded)  # beyond rounding without leanings: test_runs.py
        assert standing(outcome) is Standing.KNOWN
        two = judge(claim, recorded, faults=("cache-bfloat16", "window-one-short"))
        assert standing(two) is Standing.UNMET

    def test_a_claim_that_holds_with_the_fault_says_nothing(self, judge: Judge) -> None:
        """Both runs of an engine are off alike."""
        claim = Agree("decode", WHOLE.token_by_token(2), WHOLE)
        for faults in ((), ("window-one-short",)):
            outcome = judge(claim, WINDOW, faults=faults)
            assert outcome.holds
            assert standing(outcome) is Standing.SILENT

    def test_an_engine_that_declines_shows_nothing(self, judge: Judge) -> None:
        steps = (Forward(3), Reset(), Forward(7))
        claim = MatchesOrRefuses("reset", replace(WHOLE, steps=steps))
        outcome = judge.on(Refusing({}), claim, entry("reset-zeroes-contents"))
        assert (outcome.holds, outcome.refused, outcome.predicted) == (True, True, None)

    def test_what_matches_the_prediction_is_not_gone(self, judge: Judge) -> None:
        """Near the bound, a run may hold while the prediction's own run fails."""
        outcome = judge(Fussy("fussy", WHOLE), WINDOW, faults=("window-one-short",))
        assert outcome.holds
        assert standing(outcome) is Standing.SILENT
        assert standing(judge(Fussy("fussy", WHOLE), WINDOW)) is Standing.GONE

    def test_no_logits_are_no_prediction_that_holds(self, judge: Judge) -> None:
        outcome = judge.on(Dying({}), Matches("reference", WHOLE), WINDOW)
        assert standing(outcome) is Standing.UNMET
        assert residual(outcome).problem == "failed: no kernel"


class Refusing(FaultyAdapter):
    """Declines every feed with a cache operation."""

    def run(self, model: Any, feed: Feed) -> np.ndarray:
        if any(not isinstance(step, Forward) for step in feed.steps):
            raise Refused("cannot reset")
        return super().run(model, feed)


class Dying(FaultyAdapter):
    def run(self, model: Any, feed: Feed) -> np.ndarray:
        raise RuntimeError("no kernel")


class Broken(FaultyAdapter):
    """NaN at one place besides."""

    def run(self, model: Any, feed: Feed) -> np.ndarray:
        logits = super().run(model, feed).copy()
        logits[1, 9, 0] = np.nan
        return logits


@dataclass(frozen=True)
class Fussy(Matches):
    """Holds for the backend's run, and not for the next one that it is shown."""

    def judge(self, runs: Mapping[str, Any], truths: Mapping[str, Any]) -> Outcome:
        outcome = super().judge(runs, truths)
        seen = vars(self).setdefault("seen", [])
        seen.append(outcome)
        return replace(outcome, holds=len(seen) == 1)


class TestSeveralEntries:
    given = replace(WHOLE, positions=((*range(5), *range(40, 45)),))

    def test_all_hold_at_once(self, judge: Judge) -> None:
        both = ("window-one-short", "position-ids-ignored")
        outcome = judge(Matches("reference", self.given), WINDOW, POSITIONS, faults=both)
        assert standing(outcome) is Standing.KNOWN
        assert outcome.predicted is not None
        assert outcome.predicted.entries == (WINDOW, POSITIONS)
        assert outcome.predicted.faults == ("position-ids-ignored", "window-one-short")

    def test_only_those_that_can_show_are_named(self, judge: Judge) -> None:
        outcome = judge(Matches("reference", WHOLE), WINDOW, POSITIONS, faults=("window-one-short",))
        assert outcome.predicted is not None
        assert outcome.predicted.entries == (WINDOW,)
        assert standing(outcome) is Standing.KNOWN

    @pytest.mark.parametrize(("kept", "repaired"), [(WINDOW, POSITIONS), (POSITIONS, WINDOW)])
    def test_one_of_them_repaired_is_named_alone(
        self, judge: Judge, kept: Prediction, repaired: Prediction
    ) -> None:
        outcome = judge(Matches("reference", self.given), WINDOW, POSITIONS, faults=kept.ids)
        assert not outcome.holds
        assert standing(outcome) is Standing.GONE
        assert outcome.predicted is not None
        assert outcome.predicted.gone == (repaired,)

    def test_a_third_fault_is_a_finding(self, judge: Judge) -> None:
        faults = ("window-one-short", "position-ids-ignored", "amplitude-missing")
        outcome = judge(Matches("reference", self.given), WINDOW, POSITIONS, faults=faults)
        assert standing(outcome) is Standing.UNMET


class TestEveryFeedOfAClaim:
    def test_the_feed_itself_is_executed_and_not_its_meaning(self, judge: Judge) -> None:
        recorded, faults = entry("decode-position-one-late"), ("decode-position-one-late",)
        decode = Matches("decode", WHOLE.token_by_token(5))
        assert standing(judge(decode, recorded, faults=faults)) is Standing.KNOWN
        assert judge(Matches("whole", WHOLE), recorded, faults=faults).predicted is None

    def test_a_training_mode(self, judge: Judge) -> None:
        five = replace(WHOLE.first(5), mode="training")
        recorded = entry("training-mask-one-late")
        known = judge(Matches("T = W+1", five), recorded, faults=("training-mask-one-late",))
        assert standing(known) is Standing.KNOWN

    def test_a_run_that_no_fault_touches_must_equal_the_reference(self, judge: Judge) -> None:
        """The two runs disagree because of the recorded fault; one of them has another fault besides."""
        recorded = entry("window-one-short-in-decode")
        claim = Agree("decode", WHOLE.token_by_token(5), WHOLE)
        assert standing(judge(claim, recorded, faults=("window-one-short-in-decode",))) is Standing.KNOWN
        faults = ("window-one-short-in-decode", "window-missing-from-8-tokens")  # of WHOLE, the second run
        assert standing(judge(claim, recorded, faults=faults)) is Standing.UNMET

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
    def test_every_dtype(self, judge: Judge, dtype: str) -> None:
        claim = Matches("reference", replace(WHOLE, dtype=dtype))
        assert standing(judge(claim, WINDOW, faults=("window-one-short",))) is Standing.KNOWN
        assert standing(judge(claim, WINDOW)) is Standing.GONE

    def test_top_tokens(self, judge: Judge) -> None:
        long = Feed(tokens=(ROW * 4,), steps=(Forward(40),))
        claim = SameTopTokens("top", replace(long, dtype="bfloat16"), long)
        outcome = judge(claim, WINDOW, faults=("window-one-short",))
        assert standing(outcome) in (Standing.KNOWN, Standing.SILENT)
        assert residual(outcome).grade.passes

    def test_rows_of_unequal_length_without_padding(self, judge: Judge) -> None:
        ragged = replace(PADDED, padding=None)
        for feed in (ragged, ragged.split([4, 4, 1])):
            claim = Matches("ragged", feed)
            assert standing(judge(claim, WINDOW, faults=("window-one-short",))) is Standing.KNOWN
            assert standing(judge(claim, WINDOW)) is Standing.GONE
            second = ("window-one-short", "amplitude-missing")
            assert standing(judge(claim, WINDOW, faults=second)) is Standing.UNMET

    def test_still(self, judge: Judge) -> None:
        recorded, faults = entry("mask-one-ahead"), ("mask-one-ahead",)
        changed = replace(WHOLE, tokens=((*ROW[:5], 7, *ROW[6:]),))
        claim = Still("position 5", WHOLE, changed, (Span(0, 0, 5),))
        assert standing(judge(claim, recorded, faults=faults)) is Standing.KNOWN
        assert standing(judge(claim, recorded)) is Standing.GONE
        assert standing(judge(claim, recorded, faults=("mask-missing",))) is Standing.UNMET

    def test_window_spans(self, spec: Spec, tmp_path: Path) -> None:
        alone = Judge(write_checkpoint(tmp_path, replace(spec, num_hidden_layers=1), 1))  # type: ignore[type-var]
        changed = tuple(
            replace(WHOLE, tokens=((*ROW[: 9 - back], 7, *ROW[10 - back :]),)) for back in range(8)
        )
        claim = WindowSpan("T = 10", WHOLE, changed, expected=4)
        outcome = alone(claim, WINDOW, faults=("window-one-short",))
        assert outcome.measured == {"span": {"seen": 3, "expected": 4}}
        assert standing(outcome) is Standing.KNOWN
        assert standing(alone(claim, WINDOW)) is Standing.GONE
        assert standing(alone(claim, WINDOW, faults=("window-missing",))) is Standing.UNMET


class TestWhatIsNotFinite:
    recorded = entry("padding-rows-nan")
    faults = ("padding-rows-nan",)

    def test_nan_where_it_was_predicted_is_known(self, judge: Judge) -> None:
        outcome = judge(Matches("reference", PADDED), self.recorded, faults=self.faults)
        assert outcome.verdict.grade is Grade.ERROR
        assert standing(outcome) is Standing.KNOWN

    def test_nan_elsewhere_besides_is_not(self, judge: Judge) -> None:
        outcome = judge.on(Broken({"faults": self.faults}), Matches("reference", PADDED), self.recorded)
        assert standing(outcome) is Standing.UNMET
        assert residual(outcome).problem == (
            "logits[1, 9, 0] = nan, but should be finite (1 of 10 positions)"
        )

    def test_no_nan_is_gone(self, judge: Judge) -> None:
        assert standing(judge(Matches("reference", PADDED), self.recorded)) is Standing.GONE

    def test_values_besides_are_compared(self, judge: Judge) -> None:
        faults = (*self.faults, "amplitude-missing")
        outcome = judge(Matches("reference", PADDED), self.recorded, faults=faults)
        assert standing(outcome) is Standing.UNMET
        assert residual(outcome).ratio > 100


def test_another_shape_is_predicted_too(spec: Spec, tmp_path: Path) -> None:
    untied = Judge(write_checkpoint(tmp_path, replace(spec, tie_word_embeddings=False), 1))  # type: ignore[type-var]
    recorded, faults = entry("head-padding-returned"), ("head-padding-returned",)
    outcome = untied(Matches("reference", WHOLE), recorded, faults=faults)
    assert outcome.verdict.problem == "logits: shape = [1, 10, 112], but should be [1, 10, 97]"
    assert standing(outcome) is Standing.KNOWN
    assert standing(untied(Matches("reference", WHOLE), recorded)) is Standing.GONE


def test_words(judge: Judge) -> None:
    def predicted(problem: str = "", ratio: float = 0.0) -> Predicted:
        grade = Grade.ERROR if problem else Grade.DIVERGENT
        return Predicted(Standing.UNMET, (WINDOW,), WINDOW.ids, Verdict(grade, ratio=ratio, problem=problem))

    found = predicted(ratio=230.4)
    assert predicted_words(found.faults, found.residual) == "reference + window-one-short leaves 230 x noise"
    found = predicted("failed: no kernel")
    assert predicted_words(found.faults, found.residual) == "reference + window-one-short: failed: no kernel"
    assert predicted_words(("a", "b"), Verdict(Grade.EXACT)) == "reference + a + b leaves 0 x noise"


def test_what_is_left_of_a_claim(judge: Judge) -> None:
    claim = Matches("reference", WHOLE)
    session = judge.session(FaultyAdapter({"faults": ["window-one-short"]}))

    def left(*faults: str) -> float:
        return leaves(session, "mine", judge.checkpoint, claim, faults).ratio

    assert left("window-one-short") < 8
    assert left("window-one-long") > 100


def test_entries_of_other_versions_predict_nothing() -> None:
    old, new = entry("window-one-short", engine="<2"), entry("rope-missing", engine=">=2")
    assert predictions_of([old, new], {"engine": "2.1"}) == Predictions((new,))
    assert predictions_of([old, new], {}) == Predictions()


def test_entries_that_could_show(judge: Judge) -> None:
    outcomes = [judge(Matches("reference", feed), WINDOW, POSITIONS) for feed in (SHORT, WHOLE, WHOLE)]
    assert shown(outcomes) == (WINDOW,)


def test_a_session_is_a_runner(judge: Judge) -> None:
    runner: Runner = judge.session(FaultyAdapter({}))
    assert runner.truth(judge.checkpoint, WHOLE, ("rope-missing",)).result().dtype == "float32"
