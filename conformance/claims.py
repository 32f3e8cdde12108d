"""Claims: what a law says of one trial, as data. A claim names its feeds; judging it is a pure function.

A case turns a trial into claims; the runs that they need are made elsewhere, side by side, and shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare.noise import Truth
from conformance.compare.verdict import Grade, Verdict, compare, unusable
from conformance.feeds import Feed
from conformance.runs import Run

if TYPE_CHECKING:
    from conformance.predictions import Predicted

__all__ = [
    "Agree",
    "Claim",
    "Differ",
    "Matches",
    "MatchesOrRefuses",
    "Outcome",
    "Plan",
    "SameTopTokens",
    "Span",
    "Still",
    "WindowSpan",
    "Witness",
]

Runs = Mapping[str, Run]
Truths = Mapping[str, Truth]


@dataclass(frozen=True)
class Span:
    """Positions `start` … `stop` − 1 of one row."""

    row: int
    start: int
    stop: int


@dataclass(frozen=True)
class Outcome:
    """A judged claim.

    Attributes:
        label: the claim's.
        holds: did the law hold here?
        three_way: largest differences between the run, the reference in float64, and the reference in the
            run's dtype, where the run was compared with the reference and differs.
        refused: it holds because the engine declined with an error of its own.
        verdict: the comparison that decided.
        text: what was compared with what, or what was found.
        measured: numbers that the claim reports, such as an effective window span.
        predicted: how the recorded differences of the backend speak of it, where they do.
    """

    label: str
    holds: bool
    verdict: Verdict
    text: str
    measured: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False
    three_way: Mapping[str, float] = field(default_factory=dict)
    predicted: Predicted | None = None


@dataclass(frozen=True)
class Witness:
    """That the trial exercised its subject: a case without its witness fails."""

    name: str
    held: bool


@dataclass(frozen=True)
class Claim(ABC):
    """One comparison that a law asks for.

    Attributes:
        label: short and stable, unique within its plan; deviation files match it.
    """

    label: str

    @property
    @abstractmethod
    def feeds(self) -> tuple[Feed, ...]:
        """The feeds that the backend must run."""

    @property
    def truths(self) -> tuple[Feed, ...]:
        """The feeds whose truth and noise are needed."""
        return self.feeds

    @abstractmethod
    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        """Judge from finished runs, by feed key."""


@dataclass(frozen=True)
class Plan:
    """What a law says of one trial: claims, and the witnesses that it has a subject here."""

    claims: tuple[Claim, ...]
    witnesses: tuple[Witness, ...]


def real_cells(feed: Feed) -> np.ndarray:
    """bool [B, T]: the positions of a feed that hold real tokens."""
    cells = np.zeros((feed.batch, feed.width), dtype=bool)
    for row, columns in enumerate(feed.real):
        cells[row, columns.start : columns.stop] = True
    return cells


def span_cells(feed: Feed, spans: tuple[Span, ...]) -> np.ndarray:
    """bool [B, T]: the positions of some spans."""
    cells = np.zeros((feed.batch, feed.width), dtype=bool)
    for span in spans:
        if not 0 <= span.start < span.stop <= feed.width:
            raise ValueError(f"{span} lies outside a feed of {feed.width} columns")
        cells[span.row, span.start : span.stop] = True
    return cells


def failed(label: str, run: Run, text: str) -> Outcome:
    """The outcome of a run that gave no logits."""
    return Outcome(label, False, Verdict(Grade.ERROR, problem=f"{run.kind}: {run.message}"), text)


@dataclass(frozen=True)
class Matches(Claim):
    """A run equals the reference at every real position; padding positions must be finite."""

    feed: Feed

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (self.feed,)

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        run, truth = runs[self.feed.key], truths[self.feed.key]
        text = f"{self.feed.describe()} vs the reference"
        if run.logits is None:
            return failed(self.label, run, text)
        everywhere = np.ones((self.feed.batch, self.feed.width), dtype=bool)
        verdict = compare(
            run.logits, truth.logits, truth.noise, real_cells(self.feed), self.feed.dtype, finite=everywhere
        )
        three_way = {}
        if verdict.bad:
            three_way = compare_three(run.logits, truth, real_cells(self.feed))
        return Outcome(self.label, verdict.grade.passes, verdict, text, three_way=three_way)


def compare_three(logits: np.ndarray, truth: Truth, cells: np.ndarray) -> dict[str, float]:
    """The three-way view: is it the run that is off, or the dtype?"""

    def largest(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.abs(one[cells].astype(np.float64) - other[cells]).max())

    return {
        "run vs reference in float64": largest(logits, truth.logits),
        f"run vs reference in {truth.dtype}": largest(logits, truth.in_dtype),
        f"reference in {truth.dtype} vs float64": largest(truth.in_dtype, truth.logits),
    }


@dataclass(frozen=True)
class MatchesOrRefuses(Matches):
    """As `Matches`, but the engine may also decline with an error of its own."""

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        run = runs[self.feed.key]
        if run.kind == "refused":
            text = f"{self.feed.describe()}: refused: {run.message}"
            return Outcome(self.label, True, Verdict(Grade.EXACT), text, refused=True)
        return super().judge(runs, truths)


@dataclass(frozen=True)
class Agree(Claim):
    """Two runs of one backend agree, where `pairs` aligns their positions (default: one to one)."""

    feed: Feed
    other: Feed
    pairs: tuple[tuple[Span, Span], ...] | None = None

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (self.feed, self.other)

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        text = f"{self.feed.describe()} vs {self.other.describe()}"
        for feed in self.feeds:
            if runs[feed.key].logits is None:
                return failed(self.label, runs[feed.key], text)
        got, other = runs[self.feed.key].logits, runs[self.other.key].logits
        noise, other_noise = truths[self.feed.key].noise, truths[self.other.key].noise
        if self.pairs is None:
            cells, want = real_cells(self.feed), other
        else:
            problem = misshapen(other, truths[self.other.key])
            if other is None or problem:
                return Outcome(self.label, False, Verdict(Grade.ERROR, problem=problem), text)
            cells = span_cells(self.feed, tuple(mine for mine, _ in self.pairs))
            want = align(other, self.feed, self.pairs)
            other_noise = align(other_noise, self.feed, self.pairs)
        verdict = compare(got, want, np.maximum(noise, other_noise), cells, self.feed.dtype)  # type: ignore[arg-type]
        return Outcome(self.label, verdict.grade.passes, verdict, text)


def misshapen(logits: np.ndarray | None, truth: Truth) -> str:
    """What is wrong with the shape or the values of some logits, or nothing."""
    everywhere = np.ones(truth.noise.shape, dtype=bool)
    return unusable(logits, truth.logits, everywhere, everywhere)


def align(values: np.ndarray, onto: Feed, pairs: tuple[tuple[Span, Span], ...]) -> np.ndarray:
    """Lay `values` [B', T', …] out on the grid [B, T, …] of another feed."""
    laid = np.zeros((onto.batch, onto.width, *values.shape[2:]), dtype=values.dtype)
    for mine, theirs in pairs:
        laid[mine.row, mine.start : mine.stop] = values[theirs.row, theirs.start : theirs.stop]
    return laid


@dataclass(frozen=True)
class Still(Claim):
    """Changing `feed` into `changed` leaves some positions as they were, to the bit."""

    feed: Feed
    changed: Feed
    spans: tuple[Span, ...]

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (self.feed, self.changed)

    @property
    def truths(self) -> tuple[Feed, ...]:
        return (self.feed,)

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        text = f"{self.feed.describe()}: rows that the change cannot reach"
        for feed in self.feeds:
            if runs[feed.key].logits is None:
                return failed(self.label, runs[feed.key], text)
        base, changed = runs[self.feed.key].logits, runs[self.changed.key].logits
        cells = span_cells(self.feed, self.spans)
        verdict = compare(changed, base, truths[self.feed.key].noise, cells, self.feed.dtype)  # type: ignore[arg-type]
        return Outcome(self.label, verdict.grade is Grade.EXACT, verdict, text)


@dataclass(frozen=True)
class SameTopTokens(Claim):
    """Two runs, of other dtypes perhaps, have the same top token wherever the margin exceeds the noise."""

    feed: Feed
    other: Feed

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (self.feed, self.other)

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        text = f"top tokens of {self.feed.dtype} vs {self.other.dtype}"
        for feed in self.feeds:
            if runs[feed.key].logits is None:
                return failed(self.label, runs[feed.key], text)
        noise = np.maximum(truths[self.feed.key].noise, truths[self.other.key].noise)
        other = runs[self.other.key].logits
        assert other is not None
        verdict = compare(runs[self.feed.key].logits, other, noise, real_cells(self.feed), self.feed.dtype)
        if verdict.grade is Grade.ERROR:
            return Outcome(self.label, False, verdict, text)
        # Values of two dtypes differ by more than either's noise; only the tokens are claimed to agree.
        grade = Grade.DIVERGENT if verdict.flips else Grade.ROUNDING
        counts = {"flips": verdict.flips, "near_ties": verdict.near_ties}
        return Outcome(self.label, not verdict.flips, replace(verdict, grade=grade, ratio=0.0), text, counts)


@dataclass(frozen=True)
class Differ(Agree):
    """Two runs differ by more than `least` somewhere, or, with `most`, nowhere by more than that."""

    least: float = 0.0
    most: float = np.inf

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        outcome = super().judge(runs, truths)
        if outcome.verdict.grade is Grade.ERROR:
            return outcome
        error = outcome.verdict.max_abs
        holds = self.least < error if self.least else error <= self.most
        want = f"more than {self.least:g}" if self.least else f"at most {self.most:g}"
        text = f"{outcome.text}: largest difference {error:.2g}, published {want}"
        # The bound is the published one, not the noise, so the ratio has no say in the grade.
        grade = Grade.ROUNDING if holds else Grade.DIVERGENT
        return Outcome(
            self.label, holds, replace(outcome.verdict, grade=grade, ratio=0.0), text, {"error": error}
        )


@dataclass(frozen=True)
class WindowSpan(Claim):
    """How many tokens the last position really sees, found by changing one earlier token at a time.

    `changed[k]` differs from `feed` at the token k places before the last position. Only a model of
    one layer shows its span this way.
    """

    feed: Feed
    changed: tuple[Feed, ...]
    expected: int

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (self.feed, *self.changed)

    @property
    def truths(self) -> tuple[Feed, ...]:
        return (self.feed,)

    def judge(self, runs: Runs, truths: Truths) -> Outcome:
        text = f"{self.feed.describe()}: window span"
        found: list[np.ndarray] = []
        for feed in self.feeds:
            logits = runs[feed.key].logits
            if logits is None:
                return failed(self.label, runs[feed.key], text)
            problem = misshapen(logits, truths[self.feed.key])
            if problem:
                return Outcome(self.label, False, Verdict(Grade.ERROR, problem=problem), text)
            found.append(logits[0, -1])
        base, *others = found
        moved = [bool((other != base).any()) for other in others]
        seen = max((distance + 1 for distance, moves in enumerate(moved) if moves), default=0)
        holes = sum(not moves for moves in moved[:seen])
        holds = seen == self.expected and not holes
        text = f"{self.feed.describe()}: sees {seen} tokens, but should see {self.expected}"
        if holds:
            text = f"{self.feed.describe()}: sees {seen} tokens"
        elif holes:
            text += f", and misses {holes} within"
        grade = Grade.EXACT if holds else Grade.DIVERGENT
        measured = {"span": {"seen": seen, "expected": self.expected}}
        return Outcome(self.label, holds, Verdict(grade, compared=len(moved)), text, measured)
