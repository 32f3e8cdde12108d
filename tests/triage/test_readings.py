"""Readings: error / noise of every real position, and what has no number."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.compare.noise import Truth
from conformance.compare.verdict import ROUNDING, Place
from conformance.runs import Run
from conformance.triage.probes import Probe
from conformance.triage.readings import Reading, explained, ratios, share_of

CELLS = np.array([[True, True, True], [False, True, True]])
NOISE = np.full((2, 3), 0.5)
WANT = np.arange(12.0).reshape(2, 3, 2)


def test_only_cells_that_are_compared_count() -> None:
    got = WANT.copy()
    got[1, 0] += 100  # padding
    got[0, 2, 1] += 2
    assert ratios(got, WANT, NOISE, CELLS).tolist() == [0, 0, 4, 0, 0]


@pytest.mark.parametrize("got", [None, WANT[:, :2], WANT[..., :1]])
def test_no_logits_or_another_shape_is_no_explanation(got: np.ndarray | None) -> None:
    assert ratios(got, WANT, NOISE, CELLS).tolist() == [np.inf] * 5
    assert ratios(WANT, got, NOISE, CELLS).tolist() == [np.inf] * 5


def test_a_refusal_predicts_a_refusal() -> None:
    assert ratios(None, None, NOISE, CELLS).tolist() == [0.0] * 5


def test_what_is_not_finite_is_predicted_by_what_is_not_finite_there() -> None:
    got, want = WANT.copy(), WANT.copy()
    got[0, 0, 0], want[0, 0, 1] = np.nan, np.inf  # both have no number there
    got[0, 1, 0] = np.nan
    want[0, 2, 0] = -np.inf
    assert ratios(got, want, NOISE, CELLS).tolist() == [0, np.inf, np.inf, 0, 0]


def test_the_bound_is_that_of_verdicts() -> None:
    assert explained(np.array([0.0, ROUNDING]))
    assert not explained(np.array([0.0, np.nextafter(ROUNDING, np.inf)]))
    assert not explained(np.array([np.inf]))


def test_the_first_bad_position_is_the_first_by_column(probes: dict[str, Probe]) -> None:
    probe = probes["several rows"]
    shape = (probe.feed.batch, probe.feed.width)
    want = np.zeros((*shape, probe.spec.vocab_size))
    got = want.copy()
    got[0, 5], got[2, 4] = 9, 9
    truth = Truth(want, want, np.ones(shape), "float32")
    reading = Reading(probe, Run(got), truth)
    assert reading.first_bad == Place(2, 4)
    assert not reading.conforms
    assert Reading(probe, Run(want), truth).first_bad is None
    assert Reading(probe, Run(want), truth).conforms


def test_the_share_that_is_left_is_of_the_finite_positions() -> None:
    before, after = np.array([3.0, 4.0, np.inf]), np.array([0.0, 2.5, 1.0])
    assert share_of(before, after) == 0.5
    assert share_of(np.array([np.inf]), np.array([1.0])) == 1
