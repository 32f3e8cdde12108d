"""Environments: named by their pins, made once and whole, with pip's own words when that fails."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import environments
from conformance.backends.registry import known_backends
from conformance.environments import ENVIRONMENTS, Environment, EnvironmentFailed, cache_directory

# Stands in for the interpreter of a new venv: what pip was asked goes to a file, what it says is given.
PIP = """#!/bin/sh
echo "$@" >> "{log}"
{says}
"""


@pytest.fixture
def environment(tmp_path: Path, private_cache: Path) -> Environment:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("engine==1.0\n")
    return Environment("engine", requirements)


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that notes what pip is asked; `says` beside it is a shell script of what pip does."""
    log = tmp_path / "asked"
    says = tmp_path / "says"
    says.write_text("exit 0")

    def create(path: Path, with_pip: bool) -> None:
        assert with_pip
        python = Path(path) / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PIP.format(log=log, says=says.read_text()))
        python.chmod(0o755)

    monkeypatch.setattr(environments.venv, "create", create)
    return log


def test_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.setenv("CONFORMANCE_CACHE", "")
    assert cache_directory().name == "plamo-conformance"


def test_its_name_is_what_decides_its_content(environment: Environment, private_cache: Path) -> None:
    first = environment.path
    assert first.parent == private_cache / "environments"
    assert first.name.startswith("engine-")
    copy = environment.requirements.with_name("copy.txt")
    copy.write_text("engine==1.0\n")
    assert Environment("engine", copy).path == first
    copy.write_text("engine==1.1\n")
    assert Environment("engine", copy).path != first


def test_making_one(environment: Environment, pip: Path) -> None:
    said: list[str] = []
    assert not environment.is_ready()
    assert environment.size() == 0
    assert environment.sync(said.append)
    assert environment.is_ready()
    assert environment.size() > 0
    assert said[0] == "engine: installing requirements.txt"
    assert said[1].startswith("engine: ready after ")
    asked = pip.read_text().splitlines()
    assert all(line.startswith("-m pip ") for line in asked)
    assert any(line.endswith(f"-r {environment.requirements}") for line in asked)


def test_it_is_made_once(environment: Environment, pip: Path) -> None:
    assert environment.sync(lambda _: None)
    asked = pip.read_text()
    said: list[str] = []
    assert not environment.sync(said.append)
    assert (pip.read_text(), said) == (asked, [])


def test_a_half_made_one_is_made_anew(environment: Environment, pip: Path) -> None:
    leftover = environment.path / "lib" / "half-a-wheel"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    assert environment.sync(lambda _: None)
    assert not leftover.exists()


def test_what_pip_could_not_do(environment: Environment, pip: Path) -> None:
    pip.with_name("says").write_text(
        "echo 'WARNING: cache disabled' >&2\n"
        "echo 'ERROR: No matching distribution found for engine==1.0' >&2\n"
        "exit 1"
    )
    with pytest.raises(EnvironmentFailed) as caught:
        environment.sync(lambda _: None)
    assert str(caught.value) == ("environment engine: ERROR: No matching distribution found for engine==1.0")
    assert not environment.is_ready()
    pip.with_name("says").write_text("exit 0")
    assert environment.sync(lambda _: None)


def test_pip_without_a_word(environment: Environment, pip: Path) -> None:
    pip.with_name("says").write_text("exit 3")
    with pytest.raises(EnvironmentFailed, match=r"^environment engine: pip failed$"):
        environment.sync(lambda _: None)


def test_how_it_is_built_is_told_to_pip_and_decides_its_name(
    environment: Environment, pip: Path, tmp_path: Path
) -> None:
    built = replace(environment, build={"CMAKE_ARGS": "-DX=OFF"})
    assert built.path != environment.path
    assert replace(built, build={"CMAKE_ARGS": "-DX=ON"}).path != built.path
    pip.with_name("says").write_text(f'echo "$CMAKE_ARGS" > {tmp_path / "seen"}')
    built.sync(lambda _: None)
    assert (tmp_path / "seen").read_text() == "-DX=OFF\n"


def test_what_takes_long_says_so_and_then_that_it_goes_on(
    environment: Environment, pip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = replace(environment, hint="this takes minutes")
    waited = threading.Event()
    monkeypatch.setattr(environments, "_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(Environment, "_pip", lambda self, *words: waited.wait())
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            waited.set()

    slow.sync(say)
    assert said[0] == "engine: installing requirements.txt; this takes minutes"
    assert all(text.startswith("engine: still installing after ") for text in said[1:-1])
    assert said[-1].startswith("engine: ready after ")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_pins_every_package_and_serves_a_backend(name: str) -> None:
    environment = ENVIRONMENTS[name]
    lines = [line.split("#")[0].strip() for line in environment.requirements.read_text().splitlines()]
    pins = [line for line in lines if line and not line.startswith("-")]
    assert pins
    assert [line for line in pins if "==" not in line] == []
    assert name in {backend.environment for backend in known_backends().values()}


def test_the_mark_of_a_ready_one_says_what_it_was_made_from(environment: Environment, pip: Path) -> None:
    environment.sync(lambda _: None)
    marks = [file for file in environment.path.iterdir() if file.suffix == ".json"]
    assert json.loads(marks[0].read_text())["requirements"] == "requirements.txt"
