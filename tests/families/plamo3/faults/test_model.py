from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.families.plamo3.faults.knobs import RIGHT
from conformance.families.plamo3.faults.layout import arrange
from conformance.families.plamo3.faults.model import run
from conformance.families.plamo3.spec import RELEASES, Plamo3Spec
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset
from conformance.trials import models
from tests.families.plamo3.faults.trials import SPECS, spec_of
from tests.families.stepwise.strategies import any_feeds
from tests.families.stepwise.trials import Oracle, feeds_of, real_cells, tokens_of, weights_of

# Logits of these models are below 100: this is a few units in the last place.
CLOSE = 1e-10

DRAWN = tuple(spec for release in RELEASES for spec, _ in models("plamo3", release, {}, 6))


def right(spec: Plamo3Spec, feed: Feed) -> np.ndarray:
    """The deviating model with the right knobs."""
    return run(spec, weights_of(spec, feed.dtype), feed).numpy()


def worst(oracle: Oracle, spec: Plamo3Spec, feed: Feed) -> float:
    """The largest difference from the oracle on real positions; padding has to be finite."""
    got = right(spec, feed)
    assert np.isfinite(got).all()
    return float(np.abs(got - oracle.run(spec, feed))[real_cells(feed)].max())


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_the_right_knobs_compute_what_the_oracle_computes(oracle: Oracle, data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(DRAWN), label="spec")
    feed = data.draw(any_feeds(spec), label="feed")
    assert worst(oracle, spec, feed) < CLOSE


@pytest.mark.parametrize("spec", SPECS, ids=Plamo3Spec.describe)
def test_the_feeds_that_look_for_faults_find_none(oracle: Oracle, spec: Plamo3Spec) -> None:
    for name, feed in feeds_of(spec):
        assert worst(oracle, spec, replace(feed, dtype="float64")) < CLOSE, name


@pytest.mark.parametrize("spec", SPECS[:2], ids=["2604", "4k"])
def test_far_positions_are_computed_alike(oracle: Oracle, spec: Plamo3Spec) -> None:
    feed = Feed(tokens=tokens_of(spec, 1, 200), steps=(Forward(200),), dtype="float64")
    assert worst(oracle, spec, feed) < CLOSE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_casts_come_in_the_order_of_the_oracle(oracle: Oracle, dtype: str) -> None:
    for spec in DRAWN:
        feed = Feed(tokens=tokens_of(spec, 2, 20), steps=(Forward(20),), dtype=dtype)
        np.testing.assert_array_equal(right(spec, feed), oracle.run(spec, feed))


def test_logits_come_in_a_wide_dtype() -> None:
    spec = SPECS[0]
    feed = Feed(tokens=tokens_of(spec, 1, 5), steps=(Forward(5),))
    for dtype, want in (("bfloat16", torch.float32), ("float32", torch.float32), ("float64", torch.float64)):
        assert run(spec, weights_of(spec, dtype), replace(feed, dtype=dtype)).dtype == want


def test_a_feed_may_be_computed_in_another_dtype_than_its_own() -> None:
    spec = SPECS[0]
    feed = Feed(tokens=tokens_of(spec, 1, 12), steps=(Forward(12),), dtype="bfloat16")
    wide = run(spec, weights_of(spec, "float64"), feed)
    torch.testing.assert_close(wide, run(spec, weights_of(spec, "float64"), replace(feed, dtype="float64")))


@pytest.mark.parametrize(
    "steps",
    [
        (Crop(3), Forward(12)),
        (Reset(), Forward(12)),
        (Reorder((1, 0)), Forward(12)),
        (Forward(6), Crop(6), Forward(6)),
        (Forward(6), Crop(99), Forward(6)),
        (Forward(6), Reset(), Reset(), Forward(6)),
        (Forward(6), Crop(0), Forward(1), Crop(1), Forward(5)),
        (Forward(12), Reset()),
    ],
    ids=str,
)
def test_operations_at_the_edges_are_right(oracle: Oracle, steps: tuple[Forward, ...]) -> None:
    for release in RELEASES:
        spec = spec_of(release)
        feed = Feed(tokens=tokens_of(spec, 2, 12), steps=steps, dtype="float64")
        assert worst(oracle, spec, feed) < CLOSE


@pytest.mark.parametrize("layers", ["local", "global"])
def test_models_of_one_layer_are_right(oracle: Oracle, layers: str) -> None:
    for release in RELEASES:
        for spec, _ in models("plamo3", release, {}, 2, layers=layers):
            feed = Feed(tokens=tokens_of(spec, 1, 24), steps=(Forward(24),), dtype="float64")
            assert worst(oracle, spec, feed) < CLOSE
            assert worst(oracle, spec, feed.token_by_token(2)) < CLOSE


def test_the_right_knobs_arrange_nothing() -> None:
    for spec in SPECS:
        weights = weights_of(spec, "float32")
        arranged = arrange(spec, weights, RIGHT)
        assert list(arranged) == list(weights)
        assert all(arranged[name] is weights[name] for name in weights)
