"""The search: what is planted is named, in as few faults as it takes, and nothing else ever is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from conformance.faults import faults_of
from conformance.runs import Run
from conformance.triage.predictions import Predictions
from conformance.triage.readings import Reading
from conformance.triage.search import Search, share_left
from tests.triage.conftest import Answers

BANK = faults_of("plamo3").FAULTS
PREFILLS = ("the first token", "within the window", "beyond the window")
ROW = (*PREFILLS, "one token on a cache", "one at a time from 2", "two tokens on a cache", "chunks")


def searched(predictions: Predictions, readings: Sequence[Reading]) -> Search:
    search = Search(predictions, BANK)
    for reading in readings:
        search.take(reading)
    return search


@pytest.mark.parametrize(
    "planted",
    [
        (),
        ("window-one-short",),
        ("window-one-short-in-prefill",),
        ("decode-position-one-late",),
        ("offset-forgotten-post-mlp",),
        # Both show on the first token, so they have to be guessed together.
        ("offset-forgotten-post-mlp", "logits-normalised"),
        # One after another: on the first token, beyond the window, over a cache.
        ("activation-gelu", "window-one-short"),
        ("activation-gelu", "window-one-short", "decode-position-one-late"),
    ],
)
def test_what_is_planted_is_named(
    planted: tuple[str, ...], predictions: Predictions, answers: Answers
) -> None:
    search = searched(predictions, answers(planted, ROW))
    assert search.stuck is None
    assert set(search.hypotheses[0]) == set(planted)


def test_runs_that_do_not_tell_leave_a_tie_that_others_break(
    predictions: Predictions, answers: Answers
) -> None:
    readings = answers(("window-one-short-in-prefill",), ROW)
    search = searched(predictions, readings[:3])
    assert {("window-one-short",), ("window-one-short-in-prefill",)} <= set(search.hypotheses)
    for reading in readings[3:]:
        search.take(reading)
    assert search.hypotheses == [("window-one-short-in-prefill",)]


def off_by_more(reading: Reading, ratio: float) -> Reading:
    """The same answer with an error of its own, of `ratio` times the noise, at the last position."""
    assert reading.run.logits is not None
    logits = reading.run.logits.astype(np.float64)
    logits[0, -1, 0] += ratio * reading.truth.noise[0, -1]
    return Reading(reading.probe, replace(reading.run, logits=logits), reading.truth)


@pytest.mark.parametrize("planted", [(), ("window-one-short",), ("activation-gelu", "window-one-short")])
def test_a_fault_that_leaves_more_than_rounding_is_never_named(
    planted: tuple[str, ...], predictions: Predictions, answers: Answers
) -> None:
    readings = answers(planted, PREFILLS)
    spoilt = [*readings[:2], off_by_more(readings[2], 1000)]
    search = searched(predictions, spoilt)
    assert search.stuck is spoilt[2]
    # An error of less than rounding changes nothing.
    search = searched(predictions, [*readings[:2], off_by_more(readings[2], 2)])
    assert search.stuck is None
    assert planted in search.hypotheses


@pytest.mark.parametrize(
    ("planted", "probe"),
    [
        # By itself the second fault cannot show there: an emptied cache has no chunk on top of it, and
        # padding on the right is seen by no token that counts.
        (("window-one-short-in-chunks", "crop-to-zero-ignored"), "crop to 0"),
        (("mask-last-window-only", "padding-seen-in-local"), "right padding"),
    ],
)
def test_one_fault_may_undo_what_hides_another(
    planted: tuple[str, ...], probe: str, predictions: Predictions, answers: Answers
) -> None:
    (reading,) = answers(planted, [probe])
    search = Search(predictions, BANK)
    (seen,) = predictions.visible(reading.probe, planted)
    assert not search.explains(reading, (seen,))
    assert search.explains(reading, planted)


def test_a_fault_that_rounds_does_not_cover_what_others_leave(
    predictions: Predictions, answers: Answers
) -> None:
    """What eps does on the first token is less than the noise of a fault that rounds."""
    search = searched(predictions, answers(("eps-missing", "post-norms-after-add"), ["the first token"]))
    rounding = {fault.id for fault in BANK if fault.rounds}
    assert not any(rounding & set(faults) for faults in search.hypotheses)


def test_without_faults_the_noise_is_that_of_the_cases(predictions: Predictions, answers: Answers) -> None:
    for reading in answers(("rope-missing",), ("several rows", "beyond the window, BF16")):
        assert (Search(predictions, BANK).left(reading, ()) == reading.plain).all()


def test_where_it_is_stuck_it_takes_in_nothing_more(predictions: Predictions, answers: Answers) -> None:
    readings = answers((), ROW)
    search = searched(predictions, [off_by_more(readings[0], 1000), *readings[1:]])
    assert search.stuck is not None
    assert search.stuck.probe.name == "the first token"
    assert search.readings == []


def test_what_was_tried_is_kept_best_first(predictions: Predictions, answers: Answers) -> None:
    search = searched(predictions, answers(("window-one-short",), PREFILLS))
    left = [rival.left for rival in search.rivals]
    assert left == sorted(left)
    assert 0 < len(left) <= 50
    assert all(rival.worst > 8 for rival in search.rivals)
    assert ("window-one-short",) not in [rival.faults for rival in search.rivals]


def test_a_conforming_backend_is_given_no_name(predictions: Predictions, answers: Answers) -> None:
    search = searched(predictions, answers((), ROW))
    assert search.hypotheses == [()]
    assert search.rivals == []


def test_the_share_is_of_the_difference_from_the_reference(answers: Answers) -> None:
    (reading,) = answers(("activation-gelu",), ("the first token",))
    got, exact = reading.run.logits, reading.truth.logits
    assert got is not None
    assert share_left(reading, exact) == 1
    assert share_left(reading, got) == 0
    assert share_left(reading, (got + exact) / 2) == pytest.approx(0.5)
    assert share_left(reading, np.full_like(exact, np.nan)) == 1
    assert share_left(Reading(reading.probe, Run(None), reading.truth), exact) == 1
