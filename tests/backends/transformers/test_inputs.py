"""What a model of remote code is called with, shown by one that only writes it down."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from conformance.backends.transformers import adapter as module
from conformance.backends.transformers.adapter import TransformersAdapter
from conformance.checkpoints.store import write_checkpoint
from conformance.errors import Refused, Unsupported
from conformance.feeds import CAPABILITIES, Crop, Feed, Forward, Reorder, Reset
from tests.families.plamo3.sizes import tiny_2604

VOCABULARY = 5
ROW = Feed(tokens=((3, 1, 4, 1, 0),), steps=(Forward(5),))
ROWS = Feed(tokens=((3, 1, 4, 1, 0), (2, 2, 0, 4, 3), (1, 0, 0, 2, 1)), steps=(Forward(5),))


@dataclass
class Cache:
    """Notes what is done to it; `refuse` is raised instead."""

    done: list[Any] = field(default_factory=list)
    refuse: Exception | None = None

    def note(self, *what: Any) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.done.append(what)

    def crop(self, length: int) -> None:
        self.note("crop", length)

    def reset(self) -> None:
        self.note("reset")

    def reorder_cache(self, rows: torch.Tensor) -> None:
        self.note("reorder", rows.tolist())


class Bare:
    """A cache without operations."""


class Network:
    """Answers with the tokens as logits, in BF16, and keeps its calls."""

    def __init__(self, cache: Any = None) -> None:
        self.cache = Cache() if cache is None else cache
        self.calls: list[dict[str, Any]] = []
        self.training = False
        self.seen: list[tuple[bool, bool]] = []
        self.broken = False

    def train(self, mode: bool) -> None:
        self.training = mode

    def eval(self) -> None:
        self.training = False

    def __call__(self, **arguments: Any) -> Any:
        if self.broken:
            raise IndexError("no such layer")
        self.calls.append(arguments)
        self.seen.append((self.training, torch.is_grad_enabled()))
        tokens = arguments["input_ids"]
        logits = torch.nn.functional.one_hot(tokens, VOCABULARY).bfloat16()
        return SimpleNamespace(logits=logits, past_key_values=self.cache if arguments["use_cache"] else None)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersAdapter]:
    """An adapter on a Transformers that can only be imported."""
    scratch = tmp_path_factory.mktemp("scratch")
    transformers, utils = ModuleType("transformers"), ModuleType("transformers.utils")
    transformers.utils = utils  # type: ignore[attr-defined]
    utils.HF_MODULES_CACHE = str(scratch / "modules")  # type: ignore[attr-defined]
    utils.logging = SimpleNamespace(disable_progress_bar=lambda: None)  # type: ignore[attr-defined]
    before = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patching, patch.dict("os.environ"):
        patching.setitem(sys.modules, "transformers", transformers)
        patching.setitem(sys.modules, "transformers.utils", utils)
        patching.setattr(module, "_process_directory", Path)
        yield TransformersAdapter({"releases": ["2604"], "scratch": str(scratch)})
    torch.set_deterministic_debug_mode(before[0])
    torch.set_num_threads(before[1])


def fed(adapter: TransformersAdapter, feed: Feed, network: Network | None = None) -> Network:
    """The network after a feed."""
    network = network or Network()
    logits = adapter.run(module._Loaded(Path(), {feed.dtype: network}), feed)
    assert logits.dtype == (np.float64 if feed.dtype == "float64" else np.float32)
    assert logits.argmax(-1).tolist() == [list(row) for row in feed.tokens]
    return network


def plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments as plain data; the cache by whether it is there."""
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
        if name != "past_key_values"
    } | ({"past_key_values": True} if "past_key_values" in arguments else {})


class TestForwards:
    def test_a_whole_row_is_fed_as_nothing_but_tokens(self, adapter: TransformersAdapter) -> None:
        assert [plain(call) for call in fed(adapter, ROW).calls] == [
            {"input_ids": [[3, 1, 4, 1, 0]], "use_cache": False}
        ]

    def test_chunks_go_on_top_of_the_cache_that_the_model_made(self, adapter: TransformersAdapter) -> None:
        network = fed(adapter, ROW.split([2, 2, 1]))
        assert [plain(call) for call in network.calls] == [
            {"input_ids": [[3, 1]], "use_cache": True},
            {"input_ids": [[4, 1]], "use_cache": True, "past_key_values": True},
            {"input_ids": [[0]], "use_cache": True, "past_key_values": True},
        ]
        assert all(call["past_key_values"] is network.cache for call in network.calls[1:])

    def test_positions_of_the_new_tokens(self, adapter: TransformersAdapter) -> None:
        positions = ((7, 8, 9, 20, 21),)
        network = fed(adapter, replace(ROW, positions=positions).split([3]))
        assert [call["position_ids"].tolist() for call in network.calls] == [[[7, 8, 9]], [[20, 21]]]

    def test_a_padding_mask_covers_what_is_cached_and_what_is_new(self, adapter: TransformersAdapter) -> None:
        feed = replace(ROWS, lengths=(2, 5, 4), padding="left")
        network = fed(adapter, feed.split([3, 2]))
        assert [call["attention_mask"].tolist() for call in network.calls] == [
            [[0, 0, 0], [1, 1, 1], [0, 1, 1]],
            [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]],
        ]
        assert network.calls[0]["attention_mask"].dtype == torch.long
        right = fed(adapter, replace(feed, padding="right"))
        assert right.calls[0]["attention_mask"].tolist() == [[1, 1, 0, 0, 0], [1] * 5, [1, 1, 1, 1, 0]]

    def test_a_packed_row_s_mask_is_causal_and_keeps_segments_apart(
        self, adapter: TransformersAdapter
    ) -> None:
        network = fed(adapter, replace(ROW, segments=((0, 0, 1, 1, 1),)).split([4]))
        first, second = (call["attention_mask"] for call in network.calls)
        assert first.dtype == torch.bool
        assert first.long().tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]]]
        assert second.long().tolist() == [[[[0, 0, 1, 1, 1]]]]

    def test_padding_in_a_packed_row_is_seen_by_nobody(self, adapter: TransformersAdapter) -> None:
        feed = replace(ROW, segments=((0, 0, 0, 1, 1),), lengths=(4,), padding="left")
        (call,) = fed(adapter, feed).calls
        assert call["attention_mask"].long().tolist()[0][0] == [
            [0, 0, 0, 0, 0],
            [0, 1, 0, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 0, 1, 0],
            [0, 0, 0, 1, 1],
        ]

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
    def test_logits_come_wide_enough(self, adapter: TransformersAdapter, dtype: str) -> None:
        fed(adapter, replace(ROW, dtype=dtype))


class TestModes:
    @pytest.mark.parametrize(
        ("mode", "training", "gradients"),
        [("evaluation", False, False), ("training", True, True), ("training-nograd", True, False)],
    )
    def test_modes(self, adapter: TransformersAdapter, mode: str, training: bool, gradients: bool) -> None:
        network = fed(adapter, replace(ROW, mode=mode))
        assert network.seen == [(training, gradients)]
        assert network.calls[0]["use_cache"] is False
        assert network.training is False

    def test_evaluation_comes_back_after_an_error(self, adapter: TransformersAdapter) -> None:
        network = Network()
        network.broken = True
        with pytest.raises(IndexError, match=r"^no such layer$"):
            fed(adapter, replace(ROW, mode="training"), network)
        assert network.training is False

    def test_training_has_no_cache(self, adapter: TransformersAdapter) -> None:
        network = Network()
        with pytest.raises(Unsupported, match=r"^runs training feeds whole: training has no cache$"):
            fed(adapter, replace(ROW, mode="training").split([2]), network)
        assert network.calls == []


class TestCacheOperations:
    def test_each_is_the_cache_s_own_method(self, adapter: TransformersAdapter) -> None:
        steps = (Forward(2), Crop(1), Forward(1), Reorder((2, 0, 0)), Forward(1), Reset(), Forward(1))
        network = fed(adapter, replace(ROWS, steps=steps))
        assert network.cache.done == [("crop", 1), ("reorder", [2, 0, 0]), ("reset",)]

    def test_an_operation_before_anything_was_fed_does_nothing(self, adapter: TransformersAdapter) -> None:
        network = fed(adapter, replace(ROW, steps=(Reset(), Forward(5))))
        assert network.cache.done == []

    def test_masks_follow_the_cache_s_rows(self, adapter: TransformersAdapter) -> None:
        steps = (Forward(3), Crop(2), Reorder((1, 0, 2)), Forward(2))
        network = fed(adapter, replace(ROWS, lengths=(3, 5, 4), padding="left", steps=steps))
        assert network.calls[1]["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]

    @pytest.mark.parametrize("error", [ValueError("it wrapped"), RuntimeError("it wrapped")])
    def test_a_cache_that_raises_has_refused(self, adapter: TransformersAdapter, error: Exception) -> None:
        feed = replace(ROW, steps=(Forward(3), Crop(1), Forward(2)))
        with pytest.raises(Refused, match=r"^Cache\.crop: it wrapped$"):
            fed(adapter, feed, Network(Cache(refuse=error)))

    def test_another_error_is_no_refusal(self, adapter: TransformersAdapter) -> None:
        feed = replace(ROW, steps=(Forward(3), Crop(1), Forward(2)))
        with pytest.raises(TypeError, match=r"^not an int$"):
            fed(adapter, feed, Network(Cache(refuse=TypeError("not an int"))))

    @pytest.mark.parametrize(
        ("step", "name"), [(Crop(1), "crop"), (Reset(), "reset"), (Reorder((0,)), "reorder_cache")]
    )
    def test_a_cache_without_the_method(self, adapter: TransformersAdapter, step: Any, name: str) -> None:
        feed = replace(ROW, steps=(Forward(3), step, Forward(2)))
        with pytest.raises(Unsupported, match=rf"^Bare has no {name}$"):
            fed(adapter, feed, Network(Bare()))


class TestTheAdapter:
    def test_what_it_declares(self, adapter: TransformersAdapter) -> None:
        assert adapter.releases == ("2604",)
        assert adapter.capabilities == set(CAPABILITIES) - {"ragged"}
        assert adapter.dtypes == ("float32", "bfloat16", "float64")
        assert (adapter.limits, adapter.orders) == ({}, ())

    def test_numerics_are_pinned(self, adapter: TransformersAdapter) -> None:
        assert adapter.numerics() == {
            "device": "cpu",
            "threads": 1,
            "matmul": "highest",
            "tf32": False,
            "deterministic": True,
            "attention": "chosen when a model is loaded",
        }

    def test_a_transformers_that_was_imported_before_is_refused(
        self, adapter: TransformersAdapter, tmp_path: Path
    ) -> None:
        """Its copies of remote code would lie where another process finds them."""
        with pytest.raises(RuntimeError) as caught, patch.dict("os.environ"):
            module._import_transformers(tmp_path)
        before = sys.modules["transformers.utils"].HF_MODULES_CACHE
        assert str(caught.value) == (
            f"HF_MODULES_CACHE = {before!r}, but should be {str(tmp_path)!r}: transformers was imported"
        )

    def test_directories_share_modules_exactly_where_they_share_code(
        self, adapter: TransformersAdapter, tmp_path: Path
    ) -> None:
        """Transformers names modules by a directory's last name alone."""
        spec = tiny_2604(num_hidden_layers=2)
        paths = [write_checkpoint(tmp_path / str(seed), spec, seed).path for seed in (1, 2)]
        changed = write_checkpoint(tmp_path / "changed", spec, 1).path
        (changed / "configuration_plamo.py").write_text("# another\n")
        one, two, other = (adapter.prepare(path).directory for path in (*paths, changed))
        assert one.name == two.name != other.name
        assert paths[0].name == changed.name
        assert one.parent != two.parent
        assert [link.resolve() for link in (one, two, other)] == [*paths, changed]
        assert adapter.prepare(paths[0]).directory == one

    def test_released_models_are_dropped(self, adapter: TransformersAdapter) -> None:
        loaded = module._Loaded(Path(), {"float32": Network()})
        adapter.release(loaded)
        assert loaded.models == {}
