"""The reference's adapter: the oracle on every kind of feed, and its evaluation orders. In this process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.checkpoints.store import Checkpoint
from conformance.families import family_of
from conformance.families.plamo3.reference import forward
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset

TOKENS = tuple(tuple((7 * row + 3 * column * column) % 97 for column in range(12)) for row in range(3))
FEED = Feed(tokens=TOKENS[:1], steps=(Forward(12),))


@pytest.fixture(scope="module")
def adapter() -> ReferenceAdapter:
    return ReferenceAdapter({})


@pytest.fixture(scope="module")
def model(adapter: ReferenceAdapter, checkpoint: Checkpoint) -> object:
    return adapter.prepare(checkpoint.path)


def directly(checkpoint: Checkpoint, tokens: list[int]) -> np.ndarray:
    """[T, V] of the oracle called by hand on one row, in float64."""
    weights = {name: w.double() for name, w in load_file(checkpoint.path / "model.safetensors").items()}
    row = torch.tensor([tokens])
    places = torch.arange(len(tokens))[None]
    return forward(checkpoint.spec, weights, row, places, torch.zeros_like(places))[0].numpy()  # type: ignore[arg-type]


class TestEveryFeed:
    """Against the oracle called by hand on the tokens that each step has as its context."""

    @pytest.fixture
    def run(self, adapter: ReferenceAdapter, model: object) -> object:
        return lambda feed: adapter.run(model, replace(feed, dtype="float64"))

    def close(self, got: np.ndarray, want: np.ndarray) -> None:
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)

    def test_whole(self, run: object, checkpoint: Checkpoint) -> None:
        self.close(run(FEED)[0], directly(checkpoint, list(TOKENS[0])))

    def test_chunks_and_training_mean_the_same(self, run: object) -> None:
        for feed in (FEED.split([5, 1, 4]), FEED.token_by_token(), replace(FEED, mode="training")):
            self.close(run(feed), run(FEED))

    def test_rows(self, run: object, checkpoint: Checkpoint) -> None:
        batch = run(Feed(tokens=TOKENS, steps=(Forward(12),)))
        for row in range(3):
            self.close(batch[row], directly(checkpoint, list(TOKENS[row])))

    @pytest.mark.parametrize("padding", ["left", "right", None])
    def test_rows_of_unequal_length(self, run: object, checkpoint: Checkpoint, padding: str | None) -> None:
        feed = Feed(tokens=TOKENS, steps=(Forward(12),), lengths=(12, 7, 1), padding=padding)
        batch = run(feed)
        assert np.isfinite(batch).all()
        for row, cells in enumerate(feed.real):
            self.close(
                batch[row, cells.start : cells.stop],
                directly(checkpoint, list(TOKENS[row][cells.start : cells.stop])),
            )

    def test_crop(self, run: object, checkpoint: Checkpoint) -> None:
        got = run(replace(FEED, steps=(Forward(8), Crop(5), Forward(4))))[0]
        row = list(TOKENS[0])
        self.close(got[:8], directly(checkpoint, row[:8]))
        self.close(got[8:], directly(checkpoint, row[:5] + row[8:])[5:])

    def test_reset(self, run: object, checkpoint: Checkpoint) -> None:
        got = run(replace(FEED, steps=(Forward(8), Reset(), Forward(4))))[0]
        self.close(got[8:], directly(checkpoint, list(TOKENS[0][8:])))

    def test_reorder(self, run: object, checkpoint: Checkpoint) -> None:
        got = run(Feed(tokens=TOKENS, steps=(Forward(8), Reorder((2, 0, 0)), Forward(4))))
        for row, source in enumerate((2, 0, 0)):
            mixed = list(TOKENS[source][:8] + TOKENS[row][8:])
            self.close(got[row, 8:], directly(checkpoint, mixed)[8:])

    def test_segments_are_rows_of_their_own(self, run: object, checkpoint: Checkpoint) -> None:
        """Positions go on counting: RoPE sees differences alone, up to YaRN-free rounding."""
        got = run(replace(FEED, segments=((0,) * 5 + (1,) * 7,)))[0]
        self.close(got[:5], directly(checkpoint, list(TOKENS[0][:5])))
        self.close(got[5:], directly(checkpoint, list(TOKENS[0][5:])))

    def test_shifted_positions_change_nothing_and_gaps_do(self, run: object) -> None:
        shifted = run(replace(FEED, positions=(tuple(range(100, 112)),)))
        self.close(shifted, run(FEED))
        gaps = run(replace(FEED, positions=(tuple(range(0, 24, 2)),)))
        assert np.abs(gaps - run(FEED)).max() > 1e-2


class TestOrders:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_every_order_is_another_evaluation_of_the_same_function(
        self, adapter: ReferenceAdapter, model: object, dtype: str
    ) -> None:
        exact = adapter.run(model, replace(FEED, dtype="float64"))
        feed = replace(FEED, dtype=dtype)
        runs = {
            order: adapter.run_in_order(model, feed, order) for order in family_of("plamo3").orders[dtype]
        }
        runs["its own"] = adapter.run(model, feed)
        bound = {"float32": 1e-3, "bfloat16": 4.0}[dtype]
        assert all(np.abs(run - exact).max() < bound for run in runs.values())
        assert len({run.tobytes() for run in runs.values()}) == len(runs)

    def test_its_own_order_is_the_one_without_relabelling(
        self, adapter: ReferenceAdapter, model: object
    ) -> None:
        np.testing.assert_array_equal(
            adapter.run_in_order(model, FEED, "relabel:0"), adapter.run(model, FEED)
        )

    def test_the_same_question_twice(self, adapter: ReferenceAdapter, model: object) -> None:
        np.testing.assert_array_equal(adapter.run(model, FEED), adapter.run(model, FEED))


def test_logits_are_float32_but_for_float64(adapter: ReferenceAdapter, model: object) -> None:
    dtypes = {dtype: adapter.run(model, replace(FEED, dtype=dtype)).dtype for dtype in adapter.dtypes}
    assert dtypes == {"float32": np.float32, "bfloat16": np.float32, "float64": np.float64}


def test_sharded_and_bfloat16_checkpoints_hold_the_same_values(
    adapter: ReferenceAdapter, model: object, checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from conformance.checkpoints.layout import Layout
    from conformance.checkpoints.store import write_checkpoint

    root = tmp_path_factory.mktemp("layouts")
    other = write_checkpoint(root, checkpoint.spec, 1, Layout(dtype="bfloat16", shards=3, omit_defaults=True))
    np.testing.assert_array_equal(adapter.run(adapter.prepare(other.path), FEED), adapter.run(model, FEED))


def test_what_it_says_of_itself(adapter: ReferenceAdapter) -> None:
    assert adapter.releases == ("2604", "4k", "gemma-4")
    assert ReferenceAdapter({"releases": ["4k"]}).releases == ("4k",)
    assert adapter.versions()["torch"] == torch.__version__
    numerics = ReferenceAdapter({"threads": 1}).numerics()
    assert (numerics["threads"], numerics["matmul"]) == (1, "highest")
    assert torch.are_deterministic_algorithms_enabled()
