"""What the adapter declares without mlx-lm at hand; the engine itself is tested by the cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conformance.backends.mlx.adapter import MlxAdapter
from conformance.feeds import CAPABILITIES
from tests.conftest import ROOT


def test_importing_it_imports_no_mlx() -> None:
    code = (
        "import sys; sys.modules['mlx'] = sys.modules['mlx_lm'] = None\n"
        "from conformance.backends.mlx.adapter import MlxAdapter\n"
        "MlxAdapter({}).numerics()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_what_it_can_do() -> None:
    adapter = MlxAdapter({"releases": ["2604", "4k"]})
    assert adapter.releases == ("2604", "4k")
    assert set(CAPABILITIES) - adapter.capabilities == {"positions", "segments", "reset"}
    assert adapter.dtypes == ("float32", "bfloat16")


def test_models_are_kept_by_dtype_until_released(tmp_path: Path) -> None:
    adapter = MlxAdapter({})
    model = adapter.prepare(tmp_path)
    assert (model.directory, model.models) == (tmp_path, {})
    model.models["float32"] = object()
    adapter.release(model)
    assert model.models == {}
