"""What the adapter declares without llama.cpp at hand; the engine itself is tested by the cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conformance.backends.llama_cpp.adapter import LlamaCppAdapter
from conformance.feeds import CAPABILITIES
from tests.conftest import ROOT


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


def test_released_models_are_freed(tmp_path: Path) -> None:
    adapter = LlamaCppAdapter({})
    loaded = adapter.prepare(tmp_path)
    models = Model(), Model()
    loaded.models = dict(zip(("float32", "bfloat16"), models, strict=True))  # type: ignore[arg-type]
    adapter.release(loaded)
    assert (loaded.models, [model.closed for model in models]) == ({}, [1, 1])
