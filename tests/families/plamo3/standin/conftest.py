"""What tests of the stand-ins share: models on disk, and each release's process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.checkpoints.store import write_checkpoint
from conformance.families.plamo3.spec import Plamo3Spec
from tests.backends.transformers.remote import Remote
from tests.families.plamo3.sizes import tiny, tiny_2604

PROBES = "tests.families.plamo3.standin.probes"


@dataclass(frozen=True)
class Standin:
    """One release's stand-in.

    Attributes:
        release: whose.
        spec: three layers, local, global, local, with W 4.
        directory: a checkpoint of it.
        remote: the process that can run it.
        models: where further checkpoints go.
    """

    release: str
    spec: Plamo3Spec
    directory: Path
    remote: Remote
    models: Path

    def ask(self, probe: str, *arguments: Any, directory: Path | None = None) -> Any:
        """A probe's answer for this model or another."""
        return self.remote.call(f"{PROBES}:{probe}", str(directory or self.directory), *arguments)

    def another(self, config: dict[str, Any] | None = None, **changed: Any) -> Path:
        """A model of the same release, some keys changed; keys of config.json edited as given."""
        spec = {"2604": tiny_2604, "4k": tiny}[self.release](**changed)
        if not config:
            return write_checkpoint(self.models, spec, seed=5).path
        path = write_checkpoint(self.models / "-".join(config), spec, seed=5).path
        file = path / "config.json"
        edited = {**json.loads(file.read_text()), **config}
        file.write_text(json.dumps({k: v for k, v in edited.items() if v != "left out"}))
        return path


@pytest.fixture(scope="module")
def standin_of(
    engine: Callable[[str], Remote], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Standin]:
    """Release → its stand-in."""

    def standin_of(release: str) -> Standin:
        spec = {"2604": tiny_2604, "4k": tiny}[release]()
        models = tmp_path_factory.mktemp(release)
        directory = write_checkpoint(models, spec, seed=5).path
        return Standin(release, spec, directory, engine(release), models)

    return standin_of


@pytest.fixture(scope="module", params=["2604", "4k"])
def standin(request: pytest.FixtureRequest, standin_of: Callable[[str], Standin]) -> Standin:
    """Both, one after the other."""
    return standin_of(request.param)
