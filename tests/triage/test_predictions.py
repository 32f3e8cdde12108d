"""Predictions: what the faulty reference computes, once, for the faults that can show."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from conformance.backends.reference.faulty import FaultyAdapter
from conformance.compare.verdict import ROUNDING
from conformance.triage import predictions as module
from conformance.triage.predictions import Predictions, process_pool
from conformance.triage.probes import Probe

SETS = [
    ("window-one-short",),
    ("q-norm-missing",),
    ("q-norm-missing", "window-one-short"),
    ("qkv-interleaved",),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with process_pool(1) as started:
        yield started


@pytest.mark.parametrize("faults", SETS)
def test_they_are_those_of_the_faulty_backend(faults: tuple[str, ...], probes: dict[str, Probe]) -> None:
    probe = probes["chunks"]
    adapter = FaultyAdapter({"faults": list(faults)})
    feed = replace(probe.feed, dtype="float64")
    wanted = adapter.run(adapter.prepare(probe.checkpoint.path), feed)
    assert (Predictions("plamo3").exact(probe, [faults])[faults] == wanted).all()


def test_processes_compute_the_same(pool: ProcessPoolExecutor, probes: dict[str, Probe]) -> None:
    here, there = Predictions("plamo3"), Predictions("plamo3", pool)
    ours, theirs = here.exact(probes["chunks"], SETS), there.exact(probes["chunks"], SETS)
    for faults in SETS:
        assert (ours[faults] == theirs[faults]).all()


def test_each_is_computed_once(probes: dict[str, Probe], monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[tuple[str, ...]] = []
    evaluate = module._evaluate
    monkeypatch.setattr(
        module,
        "_evaluate",
        lambda *asked: (computed.append(asked[2]), evaluate(*asked))[1],
    )
    predictions = Predictions("plamo3")
    # The window cannot show on one token, so the pair is the same as the norm alone.
    found = predictions.exact(probes["the first token"], SETS[:3])
    predictions.exact(probes["the first token"], SETS[:3])
    assert computed == [(), ("q-norm-missing",)]
    assert found["q-norm-missing", "window-one-short"] is found[("q-norm-missing",)]


def test_faults_that_set_one_knob_are_not_compatible() -> None:
    predictions = Predictions("plamo3")
    assert not predictions.compatible(("window-one-short", "window-one-long"))
    assert predictions.compatible(("window-one-short", "q-norm-missing"))


def test_the_noise_is_that_of_the_faulty_reference(probes: dict[str, Probe]) -> None:
    probe = probes["beyond the window"]
    predictions = Predictions("plamo3")
    truth = predictions.truth(probe, ("cache-float16",))
    right = predictions.truth(probe, ())
    assert truth is not None
    assert right is not None
    # Rounding K and V to FP16 makes the order of sums count for more.
    assert np.median(truth.noise) > ROUNDING * np.median(right.noise)
    assert truth.logits.shape == right.logits.shape
