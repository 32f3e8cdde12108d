"""Shrinking: from a failing trial to the smallest readable one that fails the same claim.

First hypothesis looks for a small model on which the same claim of the same case fails; then the
claim's own feed is shortened and its chunks merged, on that model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from conformance.case import Trial
from conformance.cells import Cell, Finding
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import Agree, Claim, Matches, Outcome, Plan
from conformance.compare.verdict import Grade
from conformance.errors import Unsupported
from conformance.families import family_of
from conformance.feeds import Feed, Forward
from conformance.judging import judge_plan
from conformance.predictions import NO_PREDICTIONS, Predictions, Standing
from conformance.runs import Session
from conformance.workers.host import Hello, WorkerError

__all__ = ["Budget", "shorter", "shrink"]


@dataclass
class Budget:
    """How many models may still be tried; a count, so that a rerun shrinks the same way."""

    models: int


@dataclass(frozen=True)
class _Bench:
    """What judging one candidate needs."""

    session: Session
    cell: Cell
    checkpoints: Path
    predictions: Predictions

    def fails(self, checkpoint: Checkpoint, claim: Claim) -> Outcome | None:
        """The outcome if the claim fails by its values, and not as predicted; else None."""
        name, plan = self.cell.backend.name, Plan((claim,), ())
        try:
            (outcome,) = judge_plan(self.session, name, checkpoint, plan, self.predictions)
        except Unsupported:
            return None
        if outcome.holds or outcome.verdict.grade is Grade.ERROR:
            return None
        # What is known, or no longer shows, is another thing than what was found.
        predicted = outcome.predicted
        return outcome if predicted is None or predicted.standing is Standing.UNMET else None


def shrink(
    session: Session,
    cell: Cell,
    finding: Finding,
    hello: Hello,
    checkpoints: Path,
    budget: Budget,
    predictions: Predictions = NO_PREDICTIONS,
) -> Finding:
    """The smallest finding that could be had for the budget; the given one if none is smaller.

    Args:
        session: workers and shared runs.
        cell: where the claim failed.
        finding: how it failed.
        hello: limits of the backend.
        checkpoints: where generated checkpoints are kept.
        budget: is spent by every model tried.
        predictions: how the backend is known to differ.
    """
    if finding.outcome.verdict.grade is Grade.ERROR:
        return finding
    bench = _Bench(session, cell, checkpoints, predictions)
    best = [finding]
    with suppress(WorkerError):  # a reference that dies on the way must not cost the finding
        if cell.case.fixed is None and cell.case.variants is None and finding.checkpoint.seed is not None:
            best.append(_smaller_model(bench, finding, hello, budget) or finding)
        best.append(_smaller_feed(bench, best[-1]))
    return best[-1]


def _smaller_model(bench: _Bench, finding: Finding, hello: Hello, budget: Budget) -> Finding | None:
    case = bench.cell.case
    specs = family_of(bench.cell.family).specs(bench.cell.release, hello.limits, **case.specs)
    trials = specs.flatmap(
        lambda spec: st.tuples(st.just(spec), st.integers(0, 3), case.draws(spec)).map(lambda t: Trial(*t))
    )
    found: dict[Trial, Finding] = {}
    answers: dict[Trial, bool] = {}

    def fails(trial: Trial) -> bool:
        # hypothesis may ask again, also when the budget is spent, and must get the same answer.
        if trial not in answers:
            answers[trial] = budget.models > 0 and judged(trial)
        return answers[trial]

    def judged(trial: Trial) -> bool:
        budget.models -= 1
        checkpoint = write_checkpoint(bench.checkpoints, trial.spec, trial.seed, Layout())
        claim = next((c for c in case.plan(trial).claims if c.label == finding.claim.label), None)
        outcome = bench.fails(checkpoint, claim) if claim is not None else None
        if claim is None or outcome is None:
            return False
        found[trial] = Finding(trial, checkpoint, claim, outcome)
        return True

    try:
        smallest = find(
            trials,
            fails,
            settings=settings(
                max_examples=10,
                database=None,
                deadline=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
            random=Random(0),
        )
    except NoSuchExample:
        return None
    return found[smallest]


def _smaller_feed(bench: _Bench, finding: Finding) -> Finding:
    """Shorten the claim's feed as long as it goes on failing; each try is one run on a loaded model."""
    best = finding
    progress = True
    while progress:
        progress = False
        for claim in shorter(best.claim, best.outcome):
            outcome = bench.fails(best.checkpoint, claim)
            if outcome is not None:
                best = replace(best, claim=claim, outcome=outcome)
                progress = True
                break
    return best


def shorter(claim: Claim, outcome: Outcome) -> Iterator[Claim]:
    """Simpler claims of the same kind, simplest first: fewer columns, then fewer chunks."""
    if not isinstance(claim, Matches | Agree) or (isinstance(claim, Agree) and claim.pairs is not None):
        return
    feed = claim.feed
    if feed.lengths or feed.positions or feed.segments or any(not isinstance(s, Forward) for s in feed.steps):
        return
    place = outcome.verdict.first_bad
    if feed.batch > 1 and place is not None:
        yield _with(claim, replace(feed, tokens=(feed.tokens[place.row],)))
    if place is not None and place.position + 1 < feed.width:
        yield _with(claim, _first(feed, place.position + 1))
    # Hypothesis prefers equal tokens, which hide what differs until the last of them: cut in front, too.
    for columns in (feed.width // 2, feed.width // 4, 1):
        if 0 < columns < feed.width:
            yield _with(claim, _last(feed, feed.width - columns))
    for chunks in ((feed.width,), (feed.width - 1, 1), (1, feed.width - 1)):
        if len(chunks) < len(feed.chunks) and min(chunks) > 0:
            yield _with(claim, feed.split(chunks))


def _first(feed: Feed, columns: int) -> Feed:
    """The first columns, in the chunks that they were fed in."""
    kept: list[int] = []
    for size in feed.chunks:
        kept.append(min(size, columns - sum(kept)))
    return replace(feed.first(columns)).split(kept)


def _last(feed: Feed, columns: int) -> Feed:
    """The last columns, in the chunks that they were fed in."""
    dropped = feed.width - columns
    kept: list[int] = []
    for size in feed.chunks:
        cut = min(size, dropped)
        dropped -= cut
        kept.append(size - cut)
    tokens = tuple(row[-columns:] for row in feed.tokens)
    return replace(feed, tokens=tokens, steps=(Forward(columns),)).split(kept)


def _with(claim: Matches | Agree, feed: Feed) -> Claim:
    if isinstance(claim, Agree):
        other = replace(claim.other, tokens=feed.tokens, steps=(Forward(feed.width),))
        return replace(claim, feed=feed, other=other)
    return replace(claim, feed=feed)
