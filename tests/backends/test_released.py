"""Whose code a backend runs: our stand-in or what the user named, and the words for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.backends.registry import backend_named
from conformance.backends.released import code_words, dresser, released_code, sources_of
from conformance.checkpoints.release_code import ReleasedCode, dress
from conformance.checkpoints.store import Checkpoint, open_checkpoint
from conformance.errors import BadInput
from conformance.families import family_of

AUTO_MAP = {"AutoConfig": "modeling_plamo.C", "AutoModelForCausalLM": "modeling_plamo.M"}
STANDIN = {path.name: path.read_bytes() for path in family_of("plamo3").standin.glob("*.py")}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A snapshot of released code."""
    directory = tmp_path / "snapshot"
    directory.mkdir()
    (directory / "modeling_plamo.py").write_text("raise SystemExit('nobody named me')\n")
    (directory / "config.json").write_text(json.dumps({"auto_map": AUTO_MAP}))
    return directory


@pytest.fixture
def code(snapshot: Path) -> ReleasedCode:
    # Of the release, so that no environment has to be there: its interpreter is asked about the hub alone.
    backend = replace(backend_named("plamo3-2604"), environment=None)
    code = released_code(backend, {"2604": str(snapshot)})
    assert code is not None
    return code


def test_named_code_is_found_and_hashed(code: ReleasedCode, snapshot: Path) -> None:
    assert (code.path, dict(code.auto_map)) == (snapshot, AUTO_MAP)
    assert len(code.sha256) == 64


@pytest.mark.parametrize("name", ["reference", "vllm", "plamo3-4k", "tests.toys:Toy"])
def test_code_of_another_release_is_not_a_backend_s(name: str, snapshot: Path) -> None:
    assert released_code(backend_named(name), {"2604": str(snapshot)}) is None


def test_without_a_name_there_is_none() -> None:
    assert released_code(backend_named("plamo3-2604"), {}) is None


def test_named_code_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    backend = replace(backend_named("plamo3-4k"), environment=None)
    with pytest.raises(BadInput) as caught:
        released_code(backend, {"4k": str(tmp_path / "nowhere")})
    assert str(caught.value) == (
        f"release code = '{tmp_path / 'nowhere'}', but should be a snapshot directory of "
        "pfnet/plamo-3-nict-31b-base, or hub"
    )


def test_sources_come_from_options_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFORMANCE_RELEASE_CODE_2604", raising=False)
    monkeypatch.setenv("CONFORMANCE_RELEASE_CODE_4K", "/of/4k")
    assert sources_of([]) == {"4k": "/of/4k"}
    assert sources_of(["2604=hub", "4k=/other"]) == {"2604": "hub", "4k": "/other"}
    with pytest.raises(BadInput) as caught:
        sources_of(["2605=hub"])
    assert str(caught.value) == "release = '2605', but should be one of 2604, 4k [--release-code 2605=hub]"


@pytest.mark.parametrize(
    ("name", "words"),
    [("reference", "its own"), ("vllm", "its own"), ("tests.toys:Toy", "its own"), ("plamo3-4k", "stand-in")],
)
def test_words_for_code_that_nobody_named(name: str, words: str) -> None:
    assert code_words(backend_named(name), None) == words


def test_words_for_named_code(code: ReleasedCode) -> None:
    assert code_words(backend_named("plamo3-2604"), code) == f"sha256:{code.sha256}"


def python_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in checkpoint.path.glob("*.py")}


def test_named_code_takes_the_stand_in_s_place(
    code: ReleasedCode, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    assert set(python_files(checkpoint)) == set(STANDIN)
    dressed = dresser(code, tmp_path / "root")(checkpoint)
    assert set(python_files(dressed)) == {"modeling_plamo.py"}
    assert json.loads((dressed.path / "config.json").read_text())["auto_map"] == AUTO_MAP


def test_a_generated_checkpoint_has_our_stand_in_already(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert dresser(None, tmp_path / "root")(checkpoint) is checkpoint
    assert not (tmp_path / "root").exists()


def test_code_in_a_brought_checkpoint_is_not_named_by_that(
    code: ReleasedCode, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    brought = open_checkpoint(dress(checkpoint, code, tmp_path / "brought").path)
    assert set(python_files(brought)) == {"modeling_plamo.py"}
    plain = dresser(None, tmp_path / "root")(brought)
    assert python_files(plain) == STANDIN
    auto_map = json.loads((plain.path / "config.json").read_text())["auto_map"]
    assert auto_map == family_of("plamo3").auto_map["2604"]
    assert plain.path.parent == tmp_path / "root"
    assert set(python_files(brought)) == {"modeling_plamo.py"}  # the user's directory is left alone
