"""The reference with faults as evaluation orders, and rows of unequal length without padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.deviating import Order, read_order
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.checkpoints.store import Checkpoint
from conformance.errors import BadInput, Unsupported
from conformance.feeds import Crop, Feed, Forward, Reorder

TOKENS = tuple(tuple((7 * row + 3 * column * column) % 97 for column in range(12)) for row in range(3))
FEED = Feed(tokens=TOKENS, steps=(Forward(12),), dtype="float64")
RAGGED = replace(FEED, lengths=(12, 5, 8))


@pytest.fixture(scope="module")
def adapter() -> ReferenceAdapter:
    return ReferenceAdapter({})


@pytest.fixture(scope="module")
def model(adapter: ReferenceAdapter, checkpoint: Checkpoint) -> object:
    return adapter.prepare(checkpoint.path)


@pytest.mark.parametrize(
    ("order", "read"),
    [
        ("faults:a", Order(("a",))),
        ("faults:b,a;relabel:2", Order(("a", "b"), relabelling=2)),
        ("faults:;relabel:1", Order((), relabelling=1)),
        ("faults:a;lean:up", Order(("a",), lean="up")),
        ("faults:a;lean:down", Order(("a",), lean="down")),
    ],
)
def test_orders(order: str, read: Order) -> None:
    assert read_order(order) == read


@pytest.mark.parametrize("inner", ["casts:wide", "relabel:x", "lean:left", "lean", "bogus"])
def test_orders_that_there_are_not(inner: str) -> None:
    with pytest.raises(Unsupported) as raised:
        read_order(f"faults:a;{inner}")
    assert str(raised.value) == f"has no evaluation order called {inner}"


def test_an_order_is_the_faulty_implementation(
    adapter: ReferenceAdapter, model: object, checkpoint: Checkpoint
) -> None:
    ids = ("gqa-tiled", "window-one-short")
    faulty = FaultyAdapter({"faults": ids})
    prepared = faulty.prepare(checkpoint.path)
    for feed in (FEED, FEED.token_by_token(3)):
        got = adapter.run_in_order(model, feed, "faults:window-one-short,gqa-tiled")  # type: ignore[arg-type]
        np.testing.assert_array_equal(got, faulty.run(prepared, feed))
        relabelled = adapter.run_in_order(model, feed, f"faults:{','.join(ids)};relabel:2")  # type: ignore[arg-type]
        np.testing.assert_allclose(relabelled, got, rtol=0, atol=1e-10)
        assert (relabelled != got).any()
        assert np.abs(got - adapter.run(model, feed)).max() > 0.1  # type: ignore[arg-type]


def test_weights_are_arranged_once_for_each_set(adapter: ReferenceAdapter, checkpoint: Checkpoint) -> None:
    model = adapter.prepare(checkpoint.path)
    for order in (
        "faults:gate-up-interleaved,rope-missing",
        "faults:rope-missing,gate-up-interleaved;relabel:1",
        "faults:gate-up-interleaved",
    ):
        adapter.run_in_order(model, FEED, order)
    assert list(model.arranged) == [("gate-up-interleaved", "rope-missing"), ("gate-up-interleaved",)]
    first = model.arranged["gate-up-interleaved", "rope-missing"]
    assert first is not None
    assert set(first.ready) == {("float64", 0), ("float64", 1)}
    # The oracle's own weights stay as they are stored.
    plain = adapter.run(model, FEED)
    np.testing.assert_array_equal(plain, adapter.run(adapter.prepare(checkpoint.path), FEED))


def test_weights_that_stay_as_they_are_stored_are_shared(
    adapter: ReferenceAdapter, checkpoint: Checkpoint
) -> None:
    model = adapter.prepare(checkpoint.path)
    adapter.run(model, FEED)
    adapter.run_in_order(model, FEED, "faults:window-one-short")
    assert model.arranged == {("window-one-short",): None}
    assert set(model.ready) == {("float64", 0)}


def test_few_arrangements_are_kept(adapter: ReferenceAdapter, checkpoint: Checkpoint) -> None:
    model = adapter.prepare(checkpoint.path)
    names = ("rope-missing", "activation-relu", "gqa-tiled", "window-one-long", "window-missing")
    for name in names:
        adapter.run_in_order(model, FEED, f"faults:{name}")
    assert list(model.arranged) == [(name,) for name in names[1:]]


def test_an_unknown_fault(adapter: ReferenceAdapter, model: object) -> None:
    with pytest.raises(BadInput, match="did you mean rope-missing"):
        adapter.run_in_order(model, FEED, "faults:rope-mising")  # type: ignore[arg-type]


class TestRagged:
    @pytest.mark.parametrize(
        "feed",
        [
            RAGGED,
            RAGGED.split([4, 4, 1]),
            RAGGED.token_by_token(6),
            replace(RAGGED, steps=(Forward(8), Crop(3), Forward(4))),
            replace(RAGGED, segments=((0,) * 4 + (1,) * 8,) * 3),
        ],
        ids=["whole", "chunks", "decode", "crop", "segments"],
    )
    def test_without_faults_it_is_the_reference(
        self, adapter: ReferenceAdapter, model: object, feed: Feed
    ) -> None:
        got = adapter.run_in_order(model, feed, "faults:")  # type: ignore[arg-type]
        want = adapter.run(model, feed)  # type: ignore[arg-type]
        assert got.shape == want.shape
        for row, cells in enumerate(feed.real):
            np.testing.assert_allclose(got[row, cells], want[row, cells], rtol=0, atol=1e-10)
            assert (got[row, cells.stop :] == 0).all()

    def test_each_row_goes_through_the_steps(self, adapter: ReferenceAdapter, model: object) -> None:
        """A fault of decode shows in the rows that are decoded, and in their decoded tokens alone."""
        feed = RAGGED.token_by_token(8)
        got = adapter.run_in_order(model, feed, "faults:decode-position-one-late")  # type: ignore[arg-type]
        off = np.abs(got - adapter.run_in_order(model, feed, "faults:")).max(axis=-1) > 1e-6  # type: ignore[arg-type]
        assert off[0, 8:].all()
        assert not off[0, :8].any()
        assert not off[1:].any()

    @pytest.mark.parametrize("fault", ["rows-see-previous", "rows-share-positions"])
    def test_rows_that_depend_on_each_other_run_together(
        self, adapter: ReferenceAdapter, model: object, fault: str
    ) -> None:
        got = adapter.run_in_order(model, RAGGED, f"faults:{fault}")  # type: ignore[arg-type]
        want = adapter.run(model, RAGGED)  # type: ignore[arg-type]
        off = [
            np.abs(got[row, cells] - want[row, cells]).max() > 1e-6 for row, cells in enumerate(RAGGED.real)
        ]
        # Ragged rows all begin at place 0, so they share their positions anyhow.
        assert off == ([False, True, True] if fault == "rows-see-previous" else [False] * 3)

    def test_rows_cannot_be_moved(self, adapter: ReferenceAdapter, model: object) -> None:
        moved = replace(RAGGED, steps=(Forward(8), Reorder((1, 0, 2)), Forward(4)))
        with pytest.raises(Unsupported, match="moves rows of unequal length that have no padding"):
            adapter.run_in_order(model, moved, "faults:rope-missing")  # type: ignore[arg-type]
