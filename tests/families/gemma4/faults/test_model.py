from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.families.gemma4.faults.knobs import RIGHT
from conformance.families.gemma4.faults.layout import arrange
from conformance.families.gemma4.faults.model import run
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset
from conformance.trials import models
from tests.families.gemma4.faults.trials import SPECS
from tests.families.stepwise.strategies import any_feeds
from tests.families.stepwise.trials import Oracle, feeds_of, real_cells, tokens_of, weights_of

# Logits of these models are below 30: this is a few hundred units in the last place.
CLOSE = 1e-11

DRAWN = tuple(spec for spec, _ in models("gemma4", "gemma-4", {}, 8))


def right(spec: Gemma4Spec, feed: Feed) -> np.ndarray:
    """The deviating model with the right knobs."""
    return run(spec, weights_of(spec, feed.dtype), feed).numpy()


def worst(oracle: Oracle, spec: Gemma4Spec, feed: Feed) -> float:
    """The largest difference from the oracle on real positions; padding has to be finite."""
    got = right(spec, feed)
    assert np.isfinite(got).all()
    return float(np.abs(got - oracle.run(spec, feed))[real_cells(feed)].max())


def test_drawn_models_share_keys_and_values_and_do_not() -> None:
    assert len({spec.num_kv_shared_layers > 0 for spec in DRAWN}) == 2


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_the_right_knobs_compute_what_the_oracle_computes(oracle: Oracle, data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(DRAWN), label="spec")
    feed = data.draw(any_feeds(spec), label="feed")
    assert worst(oracle, spec, feed) < CLOSE


@pytest.mark.parametrize("spec", SPECS, ids=Gemma4Spec.describe)
def test_the_feeds_that_look_for_faults_find_none(oracle: Oracle, spec: Gemma4Spec) -> None:
    for name, feed in feeds_of(spec):
        assert worst(oracle, spec, replace(feed, dtype="float64")) < CLOSE, name


def test_far_positions_are_computed_alike(oracle: Oracle) -> None:
    feed = Feed(tokens=tokens_of(SPECS[1], 1, 200), steps=(Forward(200),), dtype="float64")
    assert worst(oracle, SPECS[1], feed) < CLOSE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_casts_come_in_the_order_of_the_oracle(oracle: Oracle, dtype: str) -> None:
    for spec in DRAWN:
        feed = Feed(tokens=tokens_of(spec, 2, 20), steps=(Forward(20),), dtype=dtype)
        np.testing.assert_array_equal(right(spec, feed), oracle.run(spec, feed))


@pytest.mark.parametrize(
    ("knobs", "casts"),
    [
        ({"attention_width": "scores"}, "wide_scores"),
        ({"mlp_width": "wide"}, "wide_mlp"),
        ({"softcap_width": "run"}, "narrow_cap"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_orders_of_casts_are_those_of_the_oracle(
    oracle: Oracle, knobs: dict[str, str], casts: str
) -> None:
    spec = SPECS[1]
    feed = Feed(tokens=tokens_of(spec, 2, 20), steps=(Forward(20),), dtype="bfloat16")
    got = run(spec, weights_of(spec, "bfloat16"), feed, replace(RIGHT, **knobs)).numpy()
    np.testing.assert_array_equal(got, oracle.run(spec, feed, f"casts:{casts}"))
    assert (got != oracle.run(spec, feed)).any()


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
    for spec in SPECS[:2]:
        feed = Feed(tokens=tokens_of(spec, 2, 12), steps=steps, dtype="float64")
        assert worst(oracle, spec, feed) < CLOSE


@pytest.mark.parametrize("layers", ["local", "global"])
def test_models_of_one_kind_of_layer_are_right(oracle: Oracle, layers: str) -> None:
    for spec, _ in models("gemma4", "gemma-4", {}, 2, layers=layers):
        feed = Feed(tokens=tokens_of(spec, 1, 24), steps=(Forward(24),), dtype="float64")
        assert worst(oracle, spec, feed) < CLOSE
        assert worst(oracle, spec, feed.token_by_token(2)) < CLOSE


def test_the_right_knobs_arrange_nothing() -> None:
    for spec in SPECS:
        weights = weights_of(spec, "float32")
        arranged = arrange(spec, weights, RIGHT)
        assert list(arranged) == list(weights)
        assert all(arranged[name] is weights[name] for name in weights)
