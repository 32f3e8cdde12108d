"""Predictions: what the entries of a backend say that it computes, and whether it does.

Where a fault of an entry can show in a claim's feeds, the backend is compared with the reference plus
all faults of all its entries, besides being judged as everybody is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum

from conformance.checkpoints.store import Checkpoint
from conformance.claims import Claim, Outcome, Runs, Truths, real_cells
from conformance.compare.noise import Truth
from conformance.compare.prediction import compare_predicted, worst
from conformance.compare.verdict import Grade, Verdict
from conformance.deviations import Deviation, Prediction
from conformance.families.base import Spec
from conformance.feeds import Feed
from conformance.runs import Run, Runner

__all__ = [
    "NO_PREDICTIONS",
    "Forecast",
    "Predicted",
    "Predictions",
    "Standing",
    "forecast",
    "leaves",
    "predicted_words",
    "predictions_of",
    "shown",
]


class Standing(Enum):
    """What a claim says of the prediction that speaks of it."""

    SILENT = "silent"  # it holds, and would hold for the prediction too, or is not told from it
    KNOWN = "known"  # it fails, and every run of it is as predicted
    GONE = "gone"  # it does not fail as predicted: an entry no longer shows
    UNMET = "unmet"  # it fails, but otherwise than predicted


@dataclass(frozen=True)
class Predicted:
    """A claim, judged by a prediction.

    Attributes:
        standing: what it says of the prediction.
        entries: those whose faults can show in the claim.
        faults: ids of the faults that the runs were compared with.
        residual: the worst of the claim's runs against the prediction.
        gone: the entries that no longer show, where the standing is `GONE`.
    """

    standing: Standing
    entries: tuple[Prediction, ...]
    faults: tuple[str, ...]
    residual: Verdict
    gone: tuple[Prediction, ...] = ()


@dataclass(frozen=True)
class Predictions:
    """The prediction entries of one backend for one release; all of them hold at once."""

    entries: tuple[Prediction, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Ids of all their faults."""
        return tuple(sorted(name for entry in self.entries for name in entry.ids))

    def at(self, spec: Spec, feeds: Iterable[Feed]) -> tuple[Prediction, ...]:
        """The entries with a fault that can show in one of these feeds."""
        those = tuple(feeds)
        return tuple(e for e in self.entries if any(e.applies(spec, feed) for feed in those))

    def without(self, entry: Prediction) -> Predictions:
        """The other entries."""
        return Predictions(tuple(other for other in self.entries if other is not entry))


NO_PREDICTIONS = Predictions()


def predictions_of(deviations: Iterable[Deviation], versions: Mapping[str, str]) -> Predictions:
    """The predictions among the entries of one backend for one release that speak of these versions."""
    current = (entry for entry in deviations if entry.outdated(versions) is None)
    return Predictions(tuple(entry for entry in current if isinstance(entry, Prediction)))


@dataclass(frozen=True)
class Forecast:
    """Truths asked for, so that a claim can be judged by a prediction.

    Attributes:
        predictions: what is predicted.
        entries: those that can show in the claim.
        plain: feed key → truth of the reference alone.
        faulty: feed key → truth of the reference plus the faults; the plain one where none can show.
    """

    predictions: Predictions
    entries: tuple[Prediction, ...]
    plain: Mapping[str, Future[Truth]]
    faulty: Mapping[str, Future[Truth]]

    def judge(
        self, session: Runner, checkpoint: Checkpoint, claim: Claim, runs: Runs, truths: Truths
    ) -> Outcome:
        """Judge the claim plainly, and by the prediction."""
        outcome = claim.judge(runs, truths)
        if not self.entries or outcome.refused:  # an engine that declines shows nothing of what it would do
            return outcome
        plain, faulty = _arrived(session, self.plain), _arrived(session, self.faulty)
        residual = _residual(claim, runs, plain, faulty)
        matched = residual.grade.passes
        standing: Standing = Standing.UNMET
        gone: tuple[Prediction, ...] = ()
        if outcome.holds:
            would = claim.judge({key: Run(truth.in_dtype) for key, truth in faulty.items()}, truths)
            standing = Standing.SILENT if would.holds or matched else Standing.GONE
        elif matched:
            standing = Standing.KNOWN
        if standing in (Standing.UNMET, Standing.GONE):
            gone = self._only_one_gone(session, checkpoint, claim, runs)
        if standing is Standing.GONE and not gone:
            gone = self.entries
        elif gone:
            standing = Standing.GONE
        faults = self.predictions.faults
        return replace(outcome, predicted=Predicted(standing, self.entries, faults, residual, gone))

    def _only_one_gone(
        self, session: Runner, checkpoint: Checkpoint, claim: Claim, runs: Runs
    ) -> tuple[Prediction, ...]:
        """The one of several entries without which the prediction holds, if there is one."""
        for entry in self.entries if len(self.entries) > 1 else ():
            rest = forecast(session, checkpoint, claim, self.predictions.without(entry))
            plain, faulty = _arrived(session, rest.plain), _arrived(session, rest.faulty)
            if _residual(claim, runs, plain, faulty).grade.passes:
                return (entry,)
        return ()


def forecast(session: Runner, checkpoint: Checkpoint, claim: Claim, predictions: Predictions) -> Forecast:
    """Ask for what judging a claim by some predictions needs; nothing where none of them can show."""
    spec = checkpoint.spec
    entries = predictions.at(spec, claim.feeds)
    if not entries:
        return Forecast(predictions, (), {}, {})
    feeds = {feed.key: feed for feed in claim.feeds}
    plain = {key: session.truth(checkpoint, feed) for key, feed in feeds.items()}
    faulty = {
        key: session.truth(checkpoint, feed, predictions.faults)
        if predictions.at(spec, [feed])
        else plain[key]
        for key, feed in feeds.items()
    }
    return Forecast(predictions, entries, plain, faulty)


def leaves(
    session: Runner, backend: str, checkpoint: Checkpoint, claim: Claim, faults: tuple[str, ...]
) -> Verdict:
    """The worst run of a claim against the reference with some faults."""
    feeds = {feed.key: feed for feed in claim.feeds}
    asked = {key: session.run(backend, checkpoint, feed) for key, feed in feeds.items()}
    plain = {key: session.truth(checkpoint, feed) for key, feed in feeds.items()}
    faulty = {key: session.truth(checkpoint, feed, faults) for key, feed in feeds.items()}
    runs = {key: session.wait("engine", run) for key, run in asked.items()}
    return _residual(claim, runs, _arrived(session, plain), _arrived(session, faulty))


def predicted_words(faults: Iterable[str], residual: Verdict) -> str:
    """What the prediction leaves, in a few words: ``reference + window-one-short leaves 230 x noise``."""
    with_faults = " + ".join(("reference", *faults))
    if residual.grade is Grade.ERROR:
        return f"{with_faults}: {residual.problem}"
    return f"{with_faults} leaves {residual.ratio:.3g} x noise"


def shown(outcomes: Iterable[Outcome]) -> tuple[Prediction, ...]:
    """The entries that could show in some claims."""
    found = [entry for o in outcomes if o.predicted is not None for entry in o.predicted.entries]
    return tuple(dict.fromkeys(found))


def _arrived(session: Runner, asked: Mapping[str, Future[Truth]]) -> dict[str, Truth]:
    return {key: session.wait("reference", truth) for key, truth in asked.items()}


def _residual(claim: Claim, runs: Runs, plain: Mapping[str, Truth], faulty: Mapping[str, Truth]) -> Verdict:
    """The worst of the claim's runs against the prediction."""
    verdicts: list[Verdict] = []
    for feed in claim.feeds:
        run, least = runs[feed.key], plain[feed.key].noise
        if run.logits is None:
            verdicts.append(Verdict(Grade.ERROR, problem=f"{run.kind}: {run.message}"))
        else:
            predicted, cells = faulty[feed.key], real_cells(feed)
            verdicts.append(compare_predicted(run.logits, predicted, least, cells, feed.dtype))
    return worst(verdicts)
