"""Diagnoses from end to end, on the reference with faults for a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pytest

from conformance.backends.reference.faulty import FaultyAdapter
from conformance.checkpoints.store import Checkpoint
from conformance.compare.noise import Truth
from conformance.compare.verdict import ROUNDING
from conformance.detection import LocalRuns, plant
from conformance.faults import faults_of
from conformance.feeds import Feed
from conformance.runs import Run
from conformance.triage.diagnosis import (
    CONFORMS,
    NAMED,
    UNJUDGED,
    UNKNOWN,
    Diagnosis,
    diagnose,
    diagnose_readings,
)
from conformance.triage.predictions import Predictions
from conformance.triage.probes import Setting, ladder
from tests.triage.conftest import Answers

T = TypeVar("T")
Diagnosed = Callable[..., Diagnosis]
# Without what a plain engine lacks, a diagnosis takes a second or two.
PLAIN = frozenset({"batch", "decode", "chunked"})


@pytest.fixture(scope="module")
def diagnosed(setting: Setting, runs: LocalRuns, predictions: Predictions) -> Diagnosed:
    """The diagnosis of the reference with some faults."""
    plain = replace(setting, capabilities=PLAIN)

    def of(*faults: str) -> Diagnosis:
        plant(runs, faults)
        return diagnose(runs, "faulty", plain, predictions)

    return of


def test_without_faults_it_conforms(diagnosed: Diagnosed) -> None:
    found = diagnosed()
    assert (found.status, found.named, found.start, found.spans) == (CONFORMS, (), None, ())
    assert max(finding.before for finding in found.findings) <= ROUNDING
    assert all(finding.after is None for finding in found.findings)


def test_a_named_fault_comes_with_its_evidence(diagnosed: Diagnosed) -> None:
    found = diagnosed("window-one-short")
    assert (found.status, found.named, found.ties, found.stuck) == (NAMED, ("window-one-short",), (), None)
    assert {(span.phase, span.expected - span.seen) for span in found.spans} == {
        ("prefill", 1),
        ("decode", 1),
    }
    assert found.kinds == {"local": True, "global": False}
    assert found.start is not None
    assert found.start.probe.name == "beyond the window"
    assert found.start.first_bad is not None
    assert found.start.first_bad.position == found.start.probe.spec.window_size
    for finding in found.findings:
        assert finding.after is not None
        assert finding.after <= ROUNDING
        if finding.bad:
            assert finding.before > (1000 if finding.probe.feed.dtype == "float32" else ROUNDING)
            assert finding.faults == ("window-one-short",)
    assert found.rivals
    assert all(rival.worst > ROUNDING for rival in found.rivals)


def test_each_fault_is_shown_where_it_can_show(diagnosed: Diagnosed) -> None:
    found = diagnosed("q-norm-missing", "decode-position-one-late")
    assert set(found.named) == {"q-norm-missing", "decode-position-one-late"}
    shown = {finding.probe.name: finding.faults for finding in found.findings}
    assert shown["within the window"] == ("q-norm-missing",)
    for without, left in found.parts.values():
        assert left <= ROUNDING < 1000 < without
    assert set(shown["one at a time from 2"]) == set(found.named)


def test_ties_are_broken_by_further_probes(diagnosed: Diagnosed) -> None:
    # The ladder has no step of 32 to 63 columns.
    found = diagnosed("window-missing-from-64-tokens")
    assert (found.named, found.ties) == (("window-missing-from-64-tokens",), ())
    assert "40 columns" in [finding.probe.name for finding in found.findings]


def test_twins_stay_a_tie(diagnosed: Diagnosed) -> None:
    found = diagnosed("layers-all-local")
    assert {found.named, *found.ties} == {("pattern-always-8",), ("layers-all-local",)}


@dataclass
class Disturbed:
    """Another runner's answers, changed."""

    runs: LocalRuns
    change: Callable[[Feed, Run], Run]

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        answer: Future[Run] = Future()
        answer.set_result(self.change(feed, self.runs.run(name, checkpoint, feed).result()))
        return answer

    def truth(self, checkpoint: Checkpoint, feed: Feed) -> Future[Truth]:
        return self.runs.truth(checkpoint, feed)

    def wait(self, what: str, pending: Future[T]) -> T:
        return pending.result()


@dataclass
class Declining:
    """Another runner's answers, but one model declines to have its cache emptied."""

    runs: LocalRuns
    model: Checkpoint
    elsewhere: Run | None = None

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        answer: Future[Run] = Future()
        if "reset" in feed.requires and checkpoint.identity == self.model.identity:
            answer.set_result(Run(None, "refused", "not on this one"))
            return answer
        if "reset" in feed.requires and self.elsewhere is not None:
            answer.set_result(self.elsewhere)
            return answer
        return self.runs.run(name, checkpoint, feed)

    def truth(self, checkpoint: Checkpoint, feed: Feed) -> Future[Truth]:
        return self.runs.truth(checkpoint, feed)

    def wait(self, what: str, pending: Future[T]) -> T:
        return pending.result()


@pytest.fixture
def disturbed(setting: Setting, runs: LocalRuns, predictions: Predictions) -> Diagnosed:
    """The diagnosis of a backend whose answers are changed; faults and refusals may be given."""
    plain = replace(setting, capabilities=PLAIN)

    def of(change: Callable[[Feed, Run], Run], faults: Sequence[str] = (), **given: Any) -> Diagnosis:
        plant(runs, faults)
        return diagnose(Disturbed(runs, change), "faulty", plain, predictions, **given)

    return of


def test_what_no_fault_explains_is_unknown(disturbed: Diagnosed) -> None:
    def scaled(feed: Feed, run: Run) -> Run:
        assert run.logits is not None
        return replace(run, logits=run.logits * np.float32(1.001))

    found = disturbed(scaled)
    assert (found.status, found.named, found.ties) == (UNKNOWN, (), ())
    assert found.stuck == "the first token"
    assert found.rivals
    assert found.spans


def test_a_difference_besides_a_known_fault_is_unknown(disturbed: Diagnosed) -> None:
    def besides(feed: Feed, run: Run) -> Run:
        assert run.logits is not None
        return run if len(feed.steps) == 1 else replace(run, logits=run.logits + np.float32(0.01))

    found = disturbed(besides, ["window-one-short"])
    assert (found.status, found.named) == (UNKNOWN, ())
    assert found.stuck == "one token on a cache"


def crash(feed: Feed, run: Run) -> Run:
    return Run(None, "failed", "RuntimeError: no") if feed.batch > 1 else run


def test_a_crash_is_no_conformance(disturbed: Diagnosed) -> None:
    found = disturbed(crash)
    assert (found.status, found.named) == (UNKNOWN, ())
    assert set(found.problems.values()) == {"failed: RuntimeError: no"}
    assert "several rows" in found.problems
    assert found.declined == {}


def test_a_crash_that_is_recorded_counts_for_nothing(disturbed: Diagnosed) -> None:
    found = disturbed(crash, known_refusals=["failed: RuntimeError*"])
    assert (found.status, found.problems) == (CONFORMS, {})
    assert "several rows" in found.declined


def test_what_one_model_cannot_be_asked_is_asked_of_another(
    setting: Setting, runs: LocalRuns, predictions: Predictions
) -> None:
    """A fault that shows in what the engine declines on the first model alone."""
    declining = Declining(runs, ladder(setting, faults_of(setting.family).FAULTS)[0].checkpoint)
    plant(runs, ["reset-zeroes-contents"])
    able = replace(setting, capabilities=PLAIN | {"reset"})
    found = diagnose(declining, "faulty", able, predictions)
    assert (found.status, found.named) == (NAMED, ("reset-zeroes-contents",))
    assert set(found.declined) == {"reset"}
    assert [finding.probe.name for finding in found.findings if finding.bad] == ["reset, model 2"]


def test_a_crash_on_another_model_is_no_conformance(
    setting: Setting, runs: LocalRuns, predictions: Predictions
) -> None:
    first = ladder(setting, faults_of(setting.family).FAULTS)[0].checkpoint
    declining = Declining(runs, first, elsewhere=Run(None, "failed", "RuntimeError: no"))
    plant(runs, [])
    able = replace(setting, capabilities=PLAIN | {"reset"})
    found = diagnose(declining, "faulty", able, predictions)
    assert found.status == UNKNOWN
    assert set(found.problems) == {f"reset, model {number}" for number in (2, 3, 4)}


def test_a_fault_is_named_beside_a_crash(disturbed: Diagnosed) -> None:
    found = disturbed(crash, ["window-one-short"])
    assert (found.status, found.named) == (NAMED, ("window-one-short",))
    assert found.problems


def test_without_any_answer_nothing_is_judged(disturbed: Diagnosed) -> None:
    found = disturbed(lambda feed, run: Run(None, "died", "gone"))
    assert (found.status, found.findings) == (UNJUDGED, ())


def test_phases_may_have_their_own_faults(disturbed: Diagnosed, runs: LocalRuns) -> None:
    # No one model computes this: prefill without one fault, anything over a cache with another.
    other = FaultyAdapter({"faults": ["activation-gelu"]})
    models: dict[int, Any] = {}

    def mixed(feed: Feed, run: Run) -> Run:
        if len(feed.chunks) == 1:
            return run
        checkpoint = next(c for c, f in asked if f == feed.key)
        model = models.setdefault(id(checkpoint), other.prepare(checkpoint.path))
        return Run(other.run(model, feed))

    asked: list[tuple[Checkpoint, str]] = []
    plain_run = runs.run

    def noted(name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        asked.append((checkpoint, feed.key))
        return plain_run(name, checkpoint, feed)

    runs.run = noted  # type: ignore[method-assign]
    try:
        found = disturbed(mixed, ["q-norm-missing"])
    finally:
        del runs.run
    assert (found.status, found.named) == (NAMED, ())
    assert found.by_phase["prefill"] == ("q-norm-missing",)
    assert found.by_phase["decode"] == found.by_phase["chunked"] == ("activation-gelu",)


def test_readings_that_are_there_already_are_enough(
    setting: Setting, answers: Answers, predictions: Predictions
) -> None:
    readings = answers(("activation-gelu",), ("within the window", "one at a time from 2"))
    found = diagnose_readings(setting, readings, predictions)
    assert (found.status, found.named) == (NAMED, ("activation-gelu",))
    assert len(found.findings) == 2


def test_a_probe_that_was_to_tell_ties_apart_may_leave_none(disturbed: Diagnosed) -> None:
    # The ladder has no step of 32 to 63 columns; there this engine does something else again.
    def worse(feed: Feed, run: Run) -> Run:
        assert run.logits is not None
        return replace(run, logits=run.logits * np.float32(1.01)) if feed.width in (12, 24, 40) else run

    found = disturbed(worse, ["window-missing-from-64-tokens"])
    assert (found.status, found.named, found.ties) == (UNKNOWN, (), ())
    assert found.stuck is not None
    assert found.stuck in [finding.probe.name for finding in found.findings]
    assert found.stuck.endswith(" columns")
