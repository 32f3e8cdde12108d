"""Claims judged from runs that are made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.claims import (
    Agree,
    Claim,
    Differ,
    Matches,
    MatchesOrRefuses,
    Outcome,
    SameTopTokens,
    Span,
    Still,
    WindowSpan,
)
from conformance.compare.noise import Truth
from conformance.compare.verdict import Grade
from conformance.feeds import Crop, Feed, Forward
from conformance.runs import Run

NOISE = 2.0**-20
V = 5
FEED = Feed(tokens=((1, 2, 3, 4, 5, 6),), steps=(Forward(6),))
CHUNKS = FEED.split([2, 2])
PADDED = Feed(tokens=((1, 2, 3), (4, 5, 0)), steps=(Forward(3),), lengths=(3, 2), padding="right")


def values(feed: Feed, seed: int = 0) -> np.ndarray:
    grid = np.arange(feed.batch * feed.width * V).reshape(feed.batch, feed.width, V)
    return (3 * np.sin(1 + 2 * grid + seed)).astype(np.float32)


def judge(claim: Claim, *answers: np.ndarray | Run) -> Outcome:
    """The outcome of a claim whose feeds, in order, gave these logits; the truth is `values` of each feed."""
    runs = {
        feed.key: answer if isinstance(answer, Run) else Run(answer)
        for feed, answer in zip(claim.feeds, answers, strict=True)
    }
    truths = {
        feed.key: Truth(
            values(feed).astype(np.float64),
            values(feed),
            np.full((feed.batch, feed.width), NOISE),
            feed.dtype,
        )
        for feed in claim.truths
    }
    return claim.judge(runs, truths)


def changed(logits: np.ndarray, *place: int, by: float = 1.0) -> np.ndarray:
    copy = logits.copy()
    copy[place] += by
    return copy


DEAD = Run(None, "died", "exited with code 11 during run")
EVERY_CLAIM = [
    Matches("it", FEED),
    MatchesOrRefuses("it", FEED),
    Agree("it", CHUNKS, FEED),
    Agree("it", CHUNKS, FEED, pairs=((Span(0, 0, 2), Span(0, 1, 3)),)),
    Still("it", FEED, CHUNKS, (Span(0, 0, 2),)),
    SameTopTokens("it", CHUNKS, FEED),
    Differ("it", CHUNKS, FEED, most=1.0),
    Differ("it", CHUNKS, FEED, least=1.0),
    WindowSpan("it", FEED, (CHUNKS,), 1),
]


@pytest.mark.parametrize("claim", EVERY_CLAIM, ids=lambda claim: type(claim).__name__)
class TestWhatNoClaimLetsPass:
    def test_a_run_that_failed(self, claim: Claim) -> None:
        for dead in range(len(claim.feeds)):
            answers = [DEAD if i == dead else values(FEED) for i in range(len(claim.feeds))]
            outcome = judge(claim, *answers)
            assert (outcome.label, outcome.holds) == ("it", False)
            assert outcome.verdict.grade is Grade.ERROR
            assert outcome.verdict.problem == "died: exited with code 11 during run"

    def test_a_missing_position(self, claim: Claim) -> None:
        for short in range(len(claim.feeds)):
            answers = [values(FEED)[:, : 5 if i == short else 6] for i in range(len(claim.feeds))]
            outcome = judge(claim, *answers)
            assert (outcome.holds, outcome.verdict.grade) == (False, Grade.ERROR)
            assert outcome.verdict.problem.removeprefix("other ") == (
                "logits: shape = [1, 5, 5], but should be [1, 6, 5]"
            )

    def test_all_runs_short_by_the_same_position(self, claim: Claim) -> None:
        outcome = judge(claim, *[values(FEED)[:, :-1]] * len(claim.feeds))
        assert (outcome.holds, outcome.verdict.grade) == (False, Grade.ERROR)

    def test_nan_in_every_run(self, claim: Claim) -> None:
        for position in (1, 5):
            broken = changed(values(FEED), 0, position, 3, by=np.nan)
            outcome = judge(claim, *[broken] * len(claim.feeds))
            if isinstance(claim, Still) and position == 5:
                continue  # it speaks of other positions
            if isinstance(claim, Agree) and claim.pairs and position == 5:
                continue
            assert (outcome.holds, outcome.verdict.grade) == (False, Grade.ERROR)


class TestMatches:
    def test_holds(self) -> None:
        outcome = judge(Matches("reference", FEED), values(FEED))
        assert outcome.holds
        assert outcome.text == "1 row x 6, whole, float32 vs the reference"
        assert outcome.verdict.compared == 6

    def test_one_logit_off(self) -> None:
        outcome = judge(Matches("reference", FEED), changed(values(FEED), 0, 4, 2))
        assert not outcome.holds
        assert str(outcome.verdict.first_bad) == "row 0 position 4"

    def test_padding_is_not_compared_but_has_to_be_finite(self) -> None:
        claim = Matches("reference", PADDED)
        assert judge(claim, changed(values(PADDED), 1, 2, 0)).holds
        outcome = judge(claim, changed(values(PADDED), 1, 2, 0, by=np.inf))
        assert outcome.verdict.problem == "logits[1, 2, 0] = inf, but should be finite (1 of 6 positions)"

    def test_a_refusal_fails_unless_the_law_allows_it(self) -> None:
        cropped = replace(FEED, steps=(Forward(4), Crop(2), Forward(2)))
        refused = Run(None, "refused", "cannot crop a ring")
        outcome = judge(Matches("reference", cropped), refused)
        assert (outcome.holds, outcome.verdict.problem) == (False, "refused: cannot crop a ring")
        outcome = judge(MatchesOrRefuses("reference", cropped), refused)
        assert (outcome.holds, outcome.refused, outcome.verdict.compared) == (True, True, 0)
        assert outcome.text == "1 row x 6, split 4-2, crop, float32: refused: cannot crop a ring"

    def test_only_a_refusal_is_a_refusal(self) -> None:
        claim = MatchesOrRefuses("reference", FEED)
        for kind in ("failed", "died", "hung", "memory", "protocol", "unsupported"):
            assert not judge(claim, Run(None, kind, "no")).holds
        assert not judge(claim, changed(values(FEED), 0, 4, 2)).holds


class TestAgree:
    def test_one_to_one(self) -> None:
        outcome = judge(Agree("whole", CHUNKS, FEED), values(FEED), values(FEED))
        assert outcome.holds
        assert outcome.text == "1 row x 6, split 2-2-2, float32 vs 1 row x 6, whole, float32"
        assert not judge(Agree("whole", CHUNKS, FEED), changed(values(FEED), 0, 5, 0), values(FEED)).holds

    def test_with_each_other_and_not_with_the_reference(self) -> None:
        assert judge(Agree("whole", CHUNKS, FEED), values(FEED, 9), values(FEED, 9)).holds

    def test_the_larger_noise_counts(self) -> None:
        claim = Agree("whole", CHUNKS, FEED)
        noise = np.full((1, 6), NOISE)
        runs = {CHUNKS.key: Run(changed(values(FEED), 0, 1, 1, by=0.5)), FEED.key: Run(values(FEED))}
        truths = {
            CHUNKS.key: Truth(values(FEED), values(FEED), noise, "float32"),
            FEED.key: Truth(values(FEED), values(FEED), np.full((1, 6), 0.1), "float32"),
        }
        assert claim.judge(runs, truths).holds
        truths[FEED.key] = truths[CHUNKS.key]
        assert not claim.judge(runs, truths).holds

    def test_aligned(self) -> None:
        """Row 1 of a padded batch against the row alone."""
        alone = PADDED.row(1)
        claim = Agree("alone", PADDED, alone, pairs=((Span(1, 0, 2), Span(0, 0, 2)),))
        batch = values(PADDED)
        outcome = judge(claim, batch, batch[1:2, :2])
        assert (outcome.holds, outcome.verdict.compared) == (True, 2)
        outcome = judge(claim, batch, changed(batch[1:2, :2], 0, 1, 3))
        assert (outcome.holds, str(outcome.verdict.first_bad)) == (False, "row 1 position 1")

    def test_aligned_with_nothing(self) -> None:
        outcome = judge(
            Agree("alone", PADDED, PADDED.row(1), pairs=()), values(PADDED), values(PADDED.row(1))
        )
        assert (outcome.holds, outcome.verdict.problem) == (False, "no position was compared")


class TestStill:
    claim = Still("future", FEED, CHUNKS, (Span(0, 0, 3),))

    def test_to_the_bit(self) -> None:
        assert judge(self.claim, values(FEED), changed(values(FEED), 0, 3, 0)).holds
        outcome = judge(self.claim, values(FEED), changed(values(FEED), 0, 2, 0, by=2.0**-22))
        assert (outcome.holds, outcome.verdict.grade) == (False, Grade.ROUNDING)


class TestSameTopTokens:
    claim = SameTopTokens("tokens", CHUNKS, FEED)

    def test_values_may_differ(self) -> None:
        outcome = judge(self.claim, values(FEED) * np.float32(1.25), values(FEED))
        assert outcome.holds
        assert outcome.measured == {"flips": 0, "near_ties": 0}

    def test_a_flip(self) -> None:
        other = values(FEED)
        other[0, 3] = other[0, 3, ::-1]
        outcome = judge(self.claim, other, values(FEED))
        assert (outcome.holds, outcome.measured) == (False, {"flips": 1, "near_ties": 0})

    def test_a_near_tie_is_none(self) -> None:
        tied = values(FEED)
        tied[0, 3] = [1, 1, 0, 0, 0]
        outcome = judge(self.claim, changed(tied, 0, 3, 1, by=2.0**-22), tied)
        assert (outcome.holds, outcome.measured) == (True, {"flips": 0, "near_ties": 1})


class TestDiffer:
    def test_at_most(self) -> None:
        claim = Differ("published", CHUNKS, FEED, most=0.5)
        outcome = judge(claim, changed(values(FEED), 0, 3, 0, by=0.25), values(FEED))
        assert (outcome.holds, outcome.measured["error"]) == (True, pytest.approx(0.25))
        assert outcome.text.endswith("whole, float32: largest difference 0.25, published at most 0.5")
        assert not judge(claim, changed(values(FEED), 0, 3, 0, by=0.75), values(FEED)).holds

    def test_more_than(self) -> None:
        claim = Differ("published", CHUNKS, FEED, least=0.5)
        assert judge(claim, changed(values(FEED), 0, 3, 0, by=0.75), values(FEED)).holds
        outcome = judge(claim, values(FEED), values(FEED))
        assert not outcome.holds
        assert outcome.text.endswith("whole, float32: largest difference 0, published more than 0.5")


class TestWindowSpan:
    """The token at distance k before the last one is changed; does the last position move?"""

    feeds = tuple(
        replace(FEED, tokens=(tuple(9 if i == 5 - k else t for i, t in enumerate(FEED.tokens[0])),))
        for k in range(6)
    )

    def outcome(self, *moves: bool, expected: int = 3) -> Outcome:
        base = values(FEED)
        answers = [changed(base, 0, 5, 0) if move else changed(base, 0, 0, 0) for move in moves]
        return judge(WindowSpan("span", FEED, self.feeds, expected), base, *answers)

    def test_as_expected(self) -> None:
        outcome = self.outcome(True, True, True, False, False, False)
        assert (outcome.holds, outcome.text, outcome.measured) == (
            True,
            "1 row x 6, whole, float32: sees 3 tokens",
            {"span": {"seen": 3, "expected": 3}},
        )

    def test_one_more(self) -> None:
        outcome = self.outcome(True, True, True, True, False, False)
        assert (outcome.holds, outcome.text) == (
            False,
            "1 row x 6, whole, float32: sees 4 tokens, but should see 3",
        )

    def test_a_hole(self) -> None:
        outcome = self.outcome(True, False, True, False, False, False)
        assert (outcome.holds, outcome.text) == (
            False,
            "1 row x 6, whole, float32: sees 3 tokens, but should see 3, and misses 1 within",
        )

    def test_blind(self) -> None:
        outcome = self.outcome(*[False] * 6)
        assert (outcome.holds, outcome.measured) == (False, {"span": {"seen": 0, "expected": 3}})
