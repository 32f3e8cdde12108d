"""What the harness's own tests share: a private cache, a tiny model on disk, and the protocol's schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.backends.registry import Backend
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.families.base import Spec
from conformance.families.plamo3.spec import Plamo3Spec

ROOT = Path(__file__).parent.parent


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory in the place of the user's."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("CONFORMANCE_CACHE", str(directory))
    return directory


@pytest.fixture(scope="session")
def spec() -> Spec:
    """A tiny 2604: two layers, one of each kind, W 4."""
    return Plamo3Spec(
        vocab_size=97,
        hidden_size=48,
        num_hidden_layers=2,
        intermediate_size=56,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        window_size=4,
        max_position_embeddings=262_144,
        sliding_window_pattern=2,
        rope_scaling_factor=16.0,
    )


@pytest.fixture(scope="session")
def checkpoint(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The tiny model, generated."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints"), spec, seed=1)


@pytest.fixture(scope="session")
def toy() -> Callable[..., Backend]:
    """Class name in tests/toys.py → the backend of that class, under another name if one is given."""

    def backend(name: str, called: str | None = None, **options: Any) -> Backend:
        adapter = f"tests.toys:{name}"
        return Backend(
            name=called or adapter, title=name, adapter=adapter, options={"paths": [str(ROOT)], **options}
        )

    return backend


@pytest.fixture(scope="session")
def conforms_to_protocol() -> Callable[[str, Mapping[str, Any]], None]:
    """Fails where a message breaks a definition of protocol.schema.json."""
    schema = json.loads(resources.files("conformance.workers").joinpath("protocol.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)

    def check(definition: str, message: Mapping[str, Any]) -> None:
        part = {"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]}
        jsonschema.Draft202012Validator(part).validate(message)

    return check
