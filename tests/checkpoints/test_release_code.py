from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from conformance.checkpoints.release_code import ReleasedCode, dress, parse_sources, resolve
from conformance.checkpoints.store import Checkpoint, Layout, open_checkpoint, write_checkpoint
from conformance.environments import ENVIRONMENTS
from conformance.errors import BadInput
from conformance.families import family_of
from conformance.families.base import Release
from tests.families.plamo3.sizes import tiny_2604

RELEASES = ("2604", "4k")
SPEC = tiny_2604(num_hidden_layers=2)
AUTO_MAP = {"AutoConfig": "modeling_plamo.C", "AutoModelForCausalLM": "modeling_plamo.M"}
CODE = {"modeling_plamo.py": b"import torch\n", "a_helper.py": b"X = 1\n"}
NEVER_RUN = "no-such-python"
LATE, SHORT = family_of("plamo3").releases


def lay_out(path: Path) -> Path:
    """A snapshot of released code."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in CODE.items():
        (path / name).write_bytes(content)
    (path / "config.json").write_text(json.dumps({"model_type": "plamo3", "auto_map": AUTO_MAP}))
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "snapshot")


# Naming


def test_no_name_means_no_released_code() -> None:
    assert parse_sources([], {}, RELEASES) == {}


def test_options_name_a_release_and_where_its_code_is() -> None:
    assert parse_sources(["2604=hub", "4k=/models/a=b"], {}, RELEASES) == {"2604": "hub", "4k": "/models/a=b"}


def test_environment_variables_name_it_too_and_options_come_before_them() -> None:
    environment = {
        "CONFORMANCE_RELEASE_CODE_2604": "/of/2604",
        "CONFORMANCE_RELEASE_CODE_4K": "/of/4k",
        "CONFORMANCE_RELEASE_CODE_OTHER": "/of/none",
    }
    assert parse_sources([], environment, RELEASES) == {"2604": "/of/2604", "4k": "/of/4k"}
    assert parse_sources(["4k=hub"], environment, RELEASES) == {"2604": "/of/2604", "4k": "hub"}
    assert parse_sources([], {"CONFORMANCE_RELEASE_CODE_2604": ""}, RELEASES) == {}


@pytest.mark.parametrize("text", ["2604", "2604=", "hub"])
def test_an_option_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_sources([text], {}, RELEASES)
    assert str(caught.value) == f"--release-code = {text!r}, but should be RELEASE=DIRECTORY or RELEASE=hub"


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        parse_sources(["2605=hub"], {}, RELEASES)
    assert str(caught.value) == "release = '2605', but should be one of 2604, 4k [--release-code 2605=hub]"


# Resolving


def test_a_directory_is_hashed_over_names_and_contents_in_name_order(snapshot: Path) -> None:
    code = resolve(str(snapshot), LATE, NEVER_RUN)
    expected = hashlib.sha256(b"a_helper.py\0X = 1\n" + b"modeling_plamo.py\0import torch\n").hexdigest()
    assert code == ReleasedCode(snapshot, expected, AUTO_MAP)
    assert resolve(os.path.relpath(snapshot), LATE, NEVER_RUN) == code


def test_only_python_files_count(snapshot: Path) -> None:
    before = resolve(str(snapshot), LATE, NEVER_RUN).sha256
    (snapshot / "README.md").write_text("x")
    assert resolve(str(snapshot), LATE, NEVER_RUN).sha256 == before
    (snapshot / "modeling_plamo.py").write_text("import torch  # changed\n")
    assert resolve(str(snapshot), LATE, NEVER_RUN).sha256 != before


def message_of(source: object, release: Release = LATE, python: str = NEVER_RUN) -> str:
    with pytest.raises(BadInput) as caught:
        resolve(str(source), release, python)
    return str(caught.value)


def test_a_missing_directory_is_named(snapshot: Path) -> None:
    assert message_of("nowhere") == (
        "release code = 'nowhere', but should be a snapshot directory of "
        "pfnet/plamo-3-nict-2604-31b-base, or hub"
    )
    file = snapshot / "modeling_plamo.py"
    assert message_of(file, SHORT) == (
        f"release code = '{file}', but should be a snapshot directory of pfnet/plamo-3-nict-31b-base, or hub"
    )


def test_a_directory_without_code_is_named(snapshot: Path) -> None:
    for name in CODE:
        (snapshot / name).unlink()
    assert message_of(snapshot) == f"no Python file, but released code of 2604 needs one [{snapshot}]"


def test_a_directory_without_config_is_named(snapshot: Path) -> None:
    (snapshot / "config.json").unlink()
    assert message_of(snapshot) == (
        f"config.json is missing, but names the classes of the released code [{snapshot}]"
    )


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", '{"auto_map": null}', '{"auto_map": ["M"]}'])
def test_a_config_that_names_no_classes_is_named(snapshot: Path, content: str) -> None:
    (snapshot / "config.json").write_text(content)
    assert message_of(snapshot) == (
        f"config.json has no auto_map, but it names the released classes [{snapshot}]"
    )


# From the hub's cache


@pytest.fixture
def hub_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter with the hub's client, offline, with an empty cache."""
    environment = ENVIRONMENTS["transformers-5"]
    if not environment.is_ready():
        pytest.skip(f"no environment {environment.name}; conformance env sync {environment.name}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return str(environment.python)


def cached(root: Path, release: Release, commit: str) -> Path:
    """A snapshot as the hub's client keeps it: blobs, and relative links to them."""
    repository = root / "hub" / f"models--{release.repository.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    blobs = lay_out(repository / "blobs")
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("..") / ".." / "blobs" / file.name)
    if commit != release.revision:
        (repository / "refs").mkdir()
        (repository / "refs" / release.revision).write_text(commit)
    return snapshot


def test_the_pinned_revision_is_found_in_the_hub_s_cache(tmp_path: Path, hub_python: str) -> None:
    snapshot = cached(tmp_path, LATE, LATE.revision)
    code = resolve("hub", LATE, hub_python)
    assert code.path == snapshot
    assert code.auto_map == AUTO_MAP
    assert code.sha256 == resolve(str(snapshot), LATE, NEVER_RUN).sha256


def test_a_short_revision_is_looked_up_in_the_hub_s_cache(tmp_path: Path, hub_python: str) -> None:
    snapshot = cached(tmp_path, SHORT, SHORT.revision + "0" * (40 - len(SHORT.revision)))
    assert resolve("hub", SHORT, hub_python).path == snapshot


def test_a_revision_that_cannot_be_had_is_named(hub_python: str) -> None:
    message = message_of("hub", LATE, hub_python)
    assert message.startswith(
        "pfnet/plamo-3-nict-2604-31b-base at e26c257e2175b05db69f01b52f4edf6fa4118f53 could not be had "
        "from the hub: huggingface_hub.errors."
    )
    assert "\n" not in message


# Dressing


@pytest.fixture
def code(snapshot: Path) -> ReleasedCode:
    return resolve(str(snapshot), LATE, NEVER_RUN)


@pytest.mark.parametrize("layout", [Layout(), Layout(shards=2)])
def test_a_dressed_checkpoint_has_released_code_and_the_same_weights(
    tmp_path: Path, code: ReleasedCode, layout: Layout
) -> None:
    ours = write_checkpoint(tmp_path / "root", SPEC, 1, layout)
    dressed = dress(ours, code, tmp_path / "root")
    weights = {file.name for file in ours.path.glob("*.safetensors*")}
    assert {file.name for file in dressed.path.iterdir()} == {"config.json", *CODE, *weights}
    for name, content in CODE.items():
        assert (dressed.path / name).read_bytes() == content
    for name in weights:
        assert os.path.samefile(dressed.path / name, ours.path / name)
    before = json.loads((ours.path / "config.json").read_text())
    assert json.loads((dressed.path / "config.json").read_text()) == {**before, "auto_map": AUTO_MAP}
    assert (dressed.spec, dressed.seed, dressed.layout) == (ours.spec, ours.seed, ours.layout)
    assert open_checkpoint(dressed.path).spec == SPEC


def test_dressing_is_done_once_and_named_by_weights_and_code(
    tmp_path: Path, snapshot: Path, code: ReleasedCode
) -> None:
    root = tmp_path / "root"
    first, second = write_checkpoint(root, SPEC, 1), write_checkpoint(root, SPEC, 2)
    dressed = dress(first, code, root)
    assert dressed.path == root / dressed.identity
    assert dress(first, code, root) == dressed
    (snapshot / "a_helper.py").write_text("X = 2\n")
    changed = resolve(str(snapshot), LATE, NEVER_RUN)
    assert (
        len({dressed.identity, dress(second, code, root).identity, dress(first, changed, root).identity}) == 3
    )
    assert not list(root.glob(".draft-*"))


def test_a_brought_checkpoint_is_dressed_where_nothing_was_written_before(
    tmp_path: Path, code: ReleasedCode
) -> None:
    brought = open_checkpoint(write_checkpoint(tmp_path / "brought", SPEC, 1).path)
    dressed = dress(brought, code, tmp_path / "not" / "yet")
    assert open_checkpoint(dressed.path).spec == SPEC


def test_a_snapshot_of_links_is_dressed_with_what_they_lead_to(tmp_path: Path, code: ReleasedCode) -> None:
    blobs = write_checkpoint(tmp_path / "blobs", SPEC, 1).path
    snapshot = tmp_path / "models" / "snapshots"
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(os.path.relpath(file, snapshot))
    # At another depth, where relative links would lead nowhere.
    dressed = dress(open_checkpoint(snapshot), code, tmp_path / "at" / "another" / "depth")
    got, expected = (load_file(path / "model.safetensors") for path in (dressed.path, blobs))
    assert got.keys() == expected.keys()


def test_weights_on_another_file_system_are_linked_to(tmp_path: Path, code: ReleasedCode) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    ours = write_checkpoint(tmp_path / "root", SPEC, 1)
    elsewhere = memory / f"conformance-{os.getpid()}"
    try:
        dressed = dress(ours, code, elsewhere)
        assert (dressed.path / "model.safetensors").is_symlink()
        assert open_checkpoint(dressed.path).spec == SPEC
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


def test_a_checkpoint_that_cannot_be_dressed_leaves_nothing_half_made(
    tmp_path: Path, code: ReleasedCode
) -> None:
    root = tmp_path / "root"
    ours = write_checkpoint(root, SPEC, 1)
    gone = Checkpoint(tmp_path / "gone", SPEC, "gone")
    with pytest.raises(FileNotFoundError):
        dress(gone, code, root)
    assert [file.name for file in root.iterdir()] == [ours.identity]
