"""Judging one plan: its runs are asked for side by side, then each claim is judged by itself."""

from __future__ import annotations

from conformance.checkpoints.store import Checkpoint
from conformance.claims import Outcome, Plan, Runs, Truths
from conformance.errors import Unsupported
from conformance.predictions import NO_PREDICTIONS, Predictions, forecast
from conformance.runs import Runner

__all__ = ["judge_plan"]


def judge_plan(
    session: Runner,
    backend: str,
    checkpoint: Checkpoint,
    plan: Plan,
    predictions: Predictions = NO_PREDICTIONS,
) -> list[Outcome]:
    """Run what a plan needs, side by side, then judge each claim, also by what is predicted of the backend.

    Raises:
        Unsupported: the backend declined one of the feeds as beyond what it can do.
    """
    feeds = {feed.key: feed for claim in plan.claims for feed in claim.feeds}
    judged = {feed.key: feed for claim in plan.claims for feed in claim.truths}
    pending = {key: session.run(backend, checkpoint, feed) for key, feed in feeds.items()}
    awaited = {key: session.truth(checkpoint, feed) for key, feed in judged.items()}
    forecasts = [forecast(session, checkpoint, claim, predictions) for claim in plan.claims]
    runs: Runs = {key: session.wait("engine", future) for key, future in pending.items()}
    truths: Truths = {key: session.wait("reference", future) for key, future in awaited.items()}
    for run in runs.values():
        if run.kind == "unsupported":
            raise Unsupported(run.message)
    return [
        ahead.judge(session, checkpoint, claim, runs, truths)
        for claim, ahead in zip(plan.claims, forecasts, strict=True)
    ]
