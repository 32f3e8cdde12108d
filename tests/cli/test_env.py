"""`conformance env`: what is made, what is there, and what pip could not do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance import environments
from conformance.backends.registry import known_backends
from conformance.environments import ENVIRONMENTS
from tests.cli.conftest import Conformance


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Environments are made in no time; the commands pip would have run."""
    asked: list[str] = []

    def create(path: Path, with_pip: bool) -> None:
        path.mkdir(parents=True)

    monkeypatch.setattr(environments.venv, "create", create)
    monkeypatch.setattr(environments.Environment, "_pip", lambda self, *words: asked.append(" ".join(words)))
    return asked


def test_list_of_nothing(conformance: Conformance, private_cache: Path) -> None:
    code, out, err = conformance("env", "list", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert list(content) == list(ENVIRONMENTS)
    users = [b.name for b in known_backends().values() if b.environment == "transformers-4"]
    assert content["transformers-4"] == {
        "state": "missing",
        "path": str(ENVIRONMENTS["transformers-4"].path),
        "bytes": 0,
        "backends": users,
    }
    code, out, _ = conformance("env", "list")
    assert code == 0
    assert all(name in out for name in ENVIRONMENTS)
    assert "missing" in out
    assert "ready" not in out
    assert not private_cache.exists()


def test_sync_of_one_backend(conformance: Conformance, pip: list[str]) -> None:
    code, out, err = conformance("env", "sync", "plamo3-4k")
    assert (code, out) == (0, "")
    assert err.splitlines()[0] == "transformers-4: installing requirements-4.txt"
    assert err.splitlines()[-1] == "transformers-4: made"
    assert len(pip) > 0
    code, _, err = conformance("env", "sync", "plamo3-4k")
    assert (code, err) == (0, "transformers-4: ready\n")
    content = json.loads(conformance("env", "list", "--json")[1])
    assert {name: state["state"] for name, state in content.items()} == {
        name: "ready" if name == "transformers-4" else "missing" for name in ENVIRONMENTS
    }


def test_sync_as_json(conformance: Conformance, pip: list[str]) -> None:
    path = str(ENVIRONMENTS["transformers-5"].path)
    code, out, _ = conformance("env", "sync", "plamo3-2604", "reference", "--json")
    assert (code, json.loads(out)) == (0, {"transformers-5": {"made": True, "path": path}})
    code, out, _ = conformance("env", "sync", "plamo3-2604", "--json")
    assert (code, json.loads(out)) == (0, {"transformers-5": {"made": False, "path": path}})


def test_sync_of_everything(conformance: Conformance, pip: list[str]) -> None:
    code, out, _ = conformance("env", "sync", "all", "--json")
    assert (code, set(json.loads(out))) == (0, set(ENVIRONMENTS))


def test_a_backend_that_is_not_known(conformance: Conformance, private_cache: Path) -> None:
    code, out, err = conformance("env", "sync", "vlm")
    names = ", ".join(known_backends())
    assert (code, out) == (2, "")
    assert err == (
        f"conformance: backend = 'vlm', but should be one of {names}, module:Class, or a worker's command; "
        "did you mean vllm?\n"
    )
    assert not private_cache.exists()


def test_what_pip_could_not_do(
    conformance: Conformance, pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: environments.Environment, *words: str) -> None:
        raise environments.EnvironmentFailed(f"environment {self.name}: ERROR: no space left [on disk]")

    monkeypatch.setattr(environments.Environment, "_pip", fail)
    code, out, err = conformance("env", "sync", "vllm")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "conformance: environment vllm: ERROR: no space left [on disk]"
