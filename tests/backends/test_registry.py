"""Backends by name: what users may write, what is started for it, and that listing imports no engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import conformance
from conformance.backends.registry import DEFAULT_BACKENDS, Backend, backend_named, known_backends
from conformance.environments import ENVIRONMENTS
from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of

PACKAGE = Path(conformance.__file__).parent


def test_known_backends() -> None:
    known = known_backends()
    assert next(iter(known)) == "reference"
    assert set(DEFAULT_BACKENDS) <= set(known)
    assert all(name == backend.name for name, backend in known.items())
    of_families = {own.name for name in FAMILIES for own in family_of(name).backends}
    assert of_families <= set(known)


def test_every_environment_that_is_named_exists() -> None:
    named = {backend.environment for backend in known_backends().values()} - {None}
    assert named <= set(ENVIRONMENTS)


def test_a_backend_of_a_family_claims_its_release_without_being_asked() -> None:
    backend = backend_named("plamo3-2604")
    assert (backend.family, backend.releases, backend.release_code) == ("plamo3", ("2604",), "2604")
    assert backend.options == {"releases": ["2604"]}


def test_backends_of_one_engine_share_what_families_say_of_it() -> None:
    window, whole = backend_named("llama-cpp"), backend_named("llama-cpp-swa-full")
    assert (window.environment, window.adapter) == (whole.environment, whole.adapter)
    claimed = tuple(release for name in FAMILIES for release in family_of(name).claims["llama-cpp"])
    assert window.releases == whole.releases == claimed
    assert whole.options == {**window.options, "swa_full": True}
    assert not {"mlx", "llama-cpp", "llama-cpp-swa-full"} & set(DEFAULT_BACKENDS)


def test_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    backend = backend_named("my.engine:Adapter")
    assert (backend.name, backend.adapter) == ("my.engine:Adapter", "my.engine:Adapter")
    assert backend.argv() == [
        sys.executable,
        str(PACKAGE / "workers" / "bootstrap.py"),
        str(PACKAGE),
        "my.engine:Adapter",
        json.dumps({"paths": [str(tmp_path)]}),
    ]
    assert backend.unavailable() is None


def test_a_class_in_another_python() -> None:
    backend = backend_named(f"my.engine:Adapter@{sys.executable}")
    assert (backend.name, backend.python) == ("my.engine:Adapter", sys.executable)
    assert backend.argv()[0] == sys.executable


def test_a_command() -> None:
    backend = backend_named(f"{sys.executable} worker.py --threads 1")
    assert backend.argv() == [sys.executable, "worker.py", "--threads", "1"]
    assert backend.adapter is None


WRONG = {
    "refrence": "; did you mean reference?",
    "plamo3-2406": "; did you mean plamo3-2604?",
    "vlm": "; did you mean vllm?",
    "something else": "",
    "": "",
}


@pytest.mark.parametrize("text", WRONG)
def test_neither(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        backend_named(text)
    names = ", ".join(known_backends())
    assert str(caught.value) == (
        f"backend = {text!r}, but should be one of {names}, module:Class, or a worker's command{WRONG[text]}"
    )


def test_an_interpreter_that_does_not_exist() -> None:
    with pytest.raises(BadInput) as caught:
        backend_named("my.engine:Adapter@/no/such/python")
    assert str(caught.value) == (
        "interpreter = '/no/such/python', but should be an executable Python "
        "[--backend my.engine:Adapter@/no/such/python]"
    )


def test_unbalanced_quotes() -> None:
    with pytest.raises(BadInput) as caught:
        backend_named('./worker "x')
    assert str(caught.value) == (
        "backend = './worker \"x', but should be a command with balanced quotes: No closing quotation"
    )


def test_an_environment_that_was_not_made(private_cache: Path) -> None:
    backend = backend_named("plamo3-4k")
    assert backend.unavailable() == "no environment: conformance env sync plamo3-4k"
    with pytest.raises(BadInput) as caught:
        backend.argv()
    assert str(caught.value) == (
        "environment transformers-4 is missing; make it with: conformance env sync plamo3-4k"
    )


def test_an_interpreter_instead_of_the_environment(private_cache: Path) -> None:
    backend = Backend(name="x", title="", environment="vllm", python="/usr/bin/python3", adapter="a:B")
    assert backend.unavailable() is None
    assert backend.argv()[0] == "/usr/bin/python3"


def test_listing_imports_no_engine() -> None:
    program = (
        "import sys; from conformance.backends.registry import known_backends; known_backends();"
        "engines = {'torch', 'transformers', 'vllm', 'mlx', 'llama_cpp', 'hypothesis'};"
        "print(sorted(engines & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "[]\n"
