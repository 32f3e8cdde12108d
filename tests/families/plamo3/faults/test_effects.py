"""What faults do to logits: each shows where it says, nowhere else, and differs from every other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conformance.families.plamo3.faults import FAULTS
from conformance.faults import NOT_FINITE, NOTHING, ROUNDING, SHAPE, VALUES, Fault, clash, combine, find
from conformance.feeds import Feed
from tests.families.plamo3.faults.trials import SPECS
from tests.families.stepwise.strategies import any_feeds
from tests.families.stepwise.trials import Ground, Oracle, feeds_of

# Units of noise: what a fault must reach somewhere, and what rounding may reach.
CLEARLY = 100.0
WITHIN = 8.0
CLOSE = 1e-9

OF_VALUES = tuple(fault for fault in FAULTS if fault.reveals == VALUES)


def those(reveals: str) -> pytest.MarkDecorator:
    faults = [fault for fault in FAULTS if fault.reveals == reveals]
    return pytest.mark.parametrize("fault", faults, ids=lambda fault: fault.id)


def grounds(oracle: Oracle, fault: Fault) -> Iterator[Ground]:
    """Where a fault applies, best first."""
    for spec in SPECS:
        for _, feed in feeds_of(spec):
            if fault.applies(spec, feed):
                yield oracle.ground(spec, feed)


@those(VALUES)
def test_a_fault_leaves_the_noise_where_it_applies(oracle: Oracle, fault: Fault) -> None:
    ratios = (ground.ratio(ground.run(fault.changes)) for ground in grounds(oracle, fault))
    assert any(ratio > CLEARLY for ratio in ratios)


@those(ROUNDING)
def test_another_order_of_casts_stays_within_the_noise(oracle: Oracle, fault: Fault) -> None:
    ratios = [ground.ratio(ground.run(fault.changes, "bfloat16")) for ground in grounds(oracle, fault)]
    assert ratios
    assert max(ratios) < WITHIN


@those(ROUNDING)
def test_another_order_of_casts_is_the_same_function(oracle: Oracle, fault: Fault) -> None:
    for ground in grounds(oracle, fault):
        assert ground.error(ground.run(fault.changes)).max() < CLOSE


@those(ROUNDING)
def test_another_order_of_casts_rounds_otherwise(oracle: Oracle, fault: Fault) -> None:
    assert any(
        (ground.run(fault.changes, "bfloat16") != ground.run({}, "bfloat16")).any()
        for ground in grounds(oracle, fault)
    )


@those(NOT_FINITE)
def test_values_that_are_not_finite_spread_to_real_positions(oracle: Oracle, fault: Fault) -> None:
    ground = next(grounds(oracle, fault))
    assert np.isnan(ground.run(fault.changes)[ground.cells]).any()


@those(SHAPE)
def test_another_shape_has_more_logits_than_tokens(oracle: Oracle, fault: Fault) -> None:
    ground = next(grounds(oracle, fault))
    got = ground.run(fault.changes)
    assert got.shape[:2] == (ground.feed.batch, ground.feed.width)
    assert got.shape[2] > ground.spec.vocab_size


@those(NOTHING)
def test_some_deviations_are_the_same_function(oracle: Oracle, fault: Fault) -> None:
    for spec in SPECS:
        for _, feed in feeds_of(spec):
            if all(condition.holds(spec, feed) for condition in fault.where):
                ground = oracle.ground(spec, feed)
                assert ground.error(ground.run(fault.changes)).max() < CLOSE


CONDITIONAL = tuple(fault for fault in FAULTS if fault.where)


@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_nothing_shows_where_a_fault_does_not_apply(oracle: Oracle, data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(SPECS[:2]), label="spec")
    feed = data.draw(any_feeds(spec, most=14), label="feed")
    fault = data.draw(st.sampled_from(CONDITIONAL), label="fault")
    assume(not fault.applies(spec, feed))
    ground = oracle.ground(spec, feed)
    assert ground.error(ground.run(fault.changes)).max() < CLOSE


@pytest.mark.parametrize(
    "name", ["whole", "decode", "chunks", "crop", "left padding", "training at span + 0"]
)
def test_nothing_shows_in_a_feed_of_the_wrong_kind(oracle: Oracle, name: str) -> None:
    spec = SPECS[0]
    ground = oracle.ground(spec, dict(feeds_of(spec))[name])
    for fault in CONDITIONAL:
        if not fault.applies(spec, ground.feed):
            assert ground.error(ground.run(fault.changes)).max() < CLOSE, fault.id


def test_every_fault_differs_from_every_other_and_from_none(oracle: Oracle) -> None:
    """Groups that no run so far tells apart are split run by run, until only twins are left."""
    right = replace(FAULTS[0], id="right", changes={}, where=())
    groups: list[list[Fault]] = [[right, *OF_VALUES]]
    for spec in SPECS:
        for _, feed in feeds_of(spec) if groups else ():
            ground = oracle.ground(spec, replace(feed, dtype="float64"))
            groups = [part for group in groups for part in _split(ground, group)]
    assert [sorted(fault.id for fault in group) for group in groups] == []


def _split(ground: Ground, group: Sequence[Fault]) -> Iterator[list[Fault]]:
    """The parts of a group whose logits agree here, of two faults or more."""
    parts: list[tuple[np.ndarray, list[Fault]]] = []
    for fault in group:
        applies = fault.applies(ground.spec, ground.feed)
        logits = ground.run(fault.changes) if applies else ground.truth.logits
        for known, members in parts:
            if np.abs(known - logits)[ground.cells].max() < CLOSE:
                members.append(fault)
                break
        else:
            parts.append((logits, [fault]))
    return (members for _, members in parts if len(members) > 1)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_faults_compose_in_any_order(oracle: Oracle, data: st.DataObject) -> None:
    faults = data.draw(st.lists(st.sampled_from(FAULTS), min_size=2, max_size=3, unique_by=lambda f: f.id))
    assume(not any(clash(a, b) for a in faults for b in faults))
    assume(not any(fault.reveals in (SHAPE, NOT_FINITE) for fault in faults))
    spec = data.draw(st.sampled_from(SPECS[:2]), label="spec")
    feed = data.draw(any_feeds(spec, most=14), label="feed")
    ground = oracle.ground(spec, feed)
    logits = [ground.run(combine(order)) for order in (faults, faults[::-1])]
    np.testing.assert_array_equal(logits[0], logits[1])


PAIRS = [
    ("window-one-long", "amplitude-missing"),
    ("offset-forgotten-q", "theta-local-is-global"),
    ("decode-position-zero", "window-missing-in-decode"),
    ("crop-ignored-when-wrapped", "position-capped-at-window"),
]


@pytest.mark.parametrize("ids", PAIRS, ids="+".join)
def test_two_faults_show_beside_each_other(oracle: Oracle, ids: tuple[str, str]) -> None:
    one, other = (find(FAULTS, id) for id in ids)
    spec = SPECS[0]
    for _, feed in feeds_of(spec):
        if one.applies(spec, feed) and other.applies(spec, feed):
            ground = oracle.ground(spec, feed)
            both = ground.run(combine([one, other]))
            assert all(np.abs(both - ground.run(f.changes))[ground.cells].max() > 1e-3 for f in (one, other))
            return
    raise AssertionError(f"no feed for {ids}")


def test_the_feeds_cover_every_condition() -> None:
    """A fault without a ground would pass unseen."""

    def holds(fault: Fault) -> bool:
        feeds: list[tuple[object, Feed]] = [(spec, feed) for spec in SPECS for _, feed in feeds_of(spec)]
        return any(all(c.holds(spec, feed) for c in fault.where) for spec, feed in feeds)  # type: ignore[arg-type]

    assert [fault.id for fault in FAULTS if not holds(fault)] == []
