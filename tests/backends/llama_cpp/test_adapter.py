"""What the adapter declares without llama.cpp at hand; the engine itself is tested by the cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.backends.llama_cpp.adapter import LlamaCppAdapter
from conformance.checkpoints.store import write_checkpoint
from conformance.errors import Unsupported
from conformance.feeds import CAPABILITIES
from tests.conftest import ROOT
from tests.families.plamo3.sizes import tiny


class Model:
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_importing_it_imports_no_llama_cpp() -> None:
    code = (
        "import sys; sys.modules['llama_cpp'] = sys.modules['gguf'] = None\n"
        "from conformance.backends.llama_cpp.adapter import LlamaCppAdapter\n"
        "LlamaCppAdapter({}).numerics()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_what_it_can_do() -> None:
    adapter = LlamaCppAdapter({"releases": ["2604", "4k"]})
    assert adapter.releases == ("2604", "4k")
    assert set(CAPABILITIES) - adapter.capabilities == {"left-padding", "right-padding", "training"}


def test_the_cache_of_local_layers_is_an_option() -> None:
    assert LlamaCppAdapter({}).numerics()["swa_full"] is False
    assert LlamaCppAdapter({"swa_full": True}).numerics()["swa_full"] is True


def test_models_without_a_local_layer_are_declined(tmp_path: Path) -> None:
    spec = tiny(sliding_window_pattern=1)
    with pytest.raises(Unsupported) as caught:
        LlamaCppAdapter({}).prepare(write_checkpoint(tmp_path, spec, 0).path)
    assert str(caught.value) == (
        "llama.cpp aborts on a model with a window but no local layer: "
        "GGML_ASSERT(hparams.is_swa_any()) failed"
    )


def test_released_models_are_freed(tmp_path: Path) -> None:
    adapter = LlamaCppAdapter({})
    loaded = adapter.prepare(write_checkpoint(tmp_path, tiny(), 0).path)
    models = Model(), Model()
    loaded.models = dict(zip(("float32", "bfloat16"), models, strict=True))  # type: ignore[arg-type]
    adapter.release(loaded)
    assert (loaded.models, [model.closed for model in models]) == ({}, [1, 1])
