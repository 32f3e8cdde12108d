from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch

from conformance.checkpoints import store
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint, open_checkpoint, read_spec, write_checkpoint
from conformance.errors import BadInput
from conformance.families import family_of
from conformance.families.plamo3 import weights as recipe
from conformance.families.plamo3.weights import tiny_weights
from tests.families.plamo3.sizes import tiny, tiny_2604

SPEC = tiny(num_hidden_layers=2)
NORM = "model.norm.weight"
WEIGHTS = "model.safetensors"


def message_of(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        open_checkpoint(path)
    return str(caught.value)


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    """A directory that a user brings: config.json and weights, nothing else."""
    path = tmp_path / "brought"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(SPEC.to_config()))
    save_file(tiny_weights(SPEC, 1), path / WEIGHTS)
    return path


def rewrite(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    tensors = load_file(path / WEIGHTS)
    change(tensors)
    save_file(tensors, path / WEIGHTS)


def reconfigure(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))


# Writing


def test_a_checkpoint_has_config_weights_and_remote_code(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, SPEC, 1)
    code = {file.name for file in family_of("plamo3").standin.glob("*.py")}
    assert {file.name for file in checkpoint.path.iterdir()} == {"config.json", WEIGHTS, *code}
    config = json.loads((checkpoint.path / "config.json").read_text())
    assert config == {
        **SPEC.to_config(),
        "torch_dtype": "float32",
        "auto_map": {
            "AutoConfig": "configuration_plamo.Plamo3Config",
            "AutoModelForCausalLM": "modeling_plamo_4k.Plamo3ForCausalLM",
        },
    }
    assert checkpoint == Checkpoint(checkpoint.path, SPEC, checkpoint.path.name, 1, Layout())
    stored, generated = load_file(checkpoint.path / WEIGHTS), tiny_weights(SPEC, 1)
    assert set(stored) == set(generated)
    assert all(np.array_equal(stored[name], w) for name, w in generated.items())


def test_a_release_gets_its_own_remote_code(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, tiny_2604(), 1)
    config = json.loads((checkpoint.path / "config.json").read_text())
    assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_plamo_2604.Plamo3ForCausalLM"


def test_what_is_written_can_be_opened(tmp_path: Path) -> None:
    for layout in (Layout(), Layout(shards=3), Layout(dtype="bfloat16"), Layout(omit_defaults=True)):
        written = write_checkpoint(tmp_path, SPEC, 1, layout)
        assert open_checkpoint(written.path).spec == SPEC
        assert read_spec(written.path) == SPEC


def test_equal_checkpoints_are_one_directory_with_equal_bytes(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path / "a", SPEC, 1)
    again = write_checkpoint(tmp_path / "a", SPEC, 1)
    elsewhere = write_checkpoint(tmp_path / "b", SPEC, 1)
    assert first == again
    assert elsewhere.identity == first.identity
    for file in first.path.iterdir():
        assert file.read_bytes() == (elsewhere.path / file.name).read_bytes()


def test_a_checkpoint_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path, SPEC, 1)
    (first.path / WEIGHTS).write_bytes(b"touched")
    assert write_checkpoint(tmp_path, SPEC, 1) == first
    assert (first.path / WEIGHTS).read_bytes() == b"touched"


def test_whatever_decides_the_bytes_decides_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = {NORM: np.ones(48, np.float32)}
    written = {
        "base": write_checkpoint(tmp_path, SPEC, 1),
        "spec": write_checkpoint(tmp_path, tiny(num_hidden_layers=2, rms_norm_eps=1e-5), 1),
        "release": write_checkpoint(tmp_path, tiny_2604(num_hidden_layers=2), 1),
        "seed": write_checkpoint(tmp_path, SPEC, 2),
        "dtype": write_checkpoint(tmp_path, SPEC, 1, Layout(dtype="bfloat16")),
        "shards": write_checkpoint(tmp_path, SPEC, 1, Layout(shards=2)),
        "left-out keys": write_checkpoint(tmp_path, SPEC, 1, Layout(omit_defaults=True)),
        "recipe": write_checkpoint(tmp_path, SPEC, 1, Layout(recipe="fresh")),
        "edited tensor": write_checkpoint(tmp_path, SPEC, 1, edited=edited),
    }
    # Directories outlive the code that generates weights, and the remote code that they carry.
    store._hash_of_weights.cache_clear()
    with monkeypatch.context() as changed:
        changed.setattr(recipe, "_FAINT_SCALE", 2.0**-8)
        written["generator"] = write_checkpoint(tmp_path, SPEC, 1)
    store._hash_of_weights.cache_clear()
    code = tmp_path / "code"
    shutil.copytree(family_of("plamo3").standin, code)
    (code / "configuration_plamo.py").write_text("# another\n")
    with monkeypatch.context() as changed:
        family = family_of("plamo3")
        changed.setattr(store, "family_of", lambda name: _with_code(family, code))
        written["remote code"] = write_checkpoint(tmp_path, SPEC, 1)
    assert len({checkpoint.identity for checkpoint in written.values()}) == len(written)
    assert write_checkpoint(tmp_path, SPEC, 1) == written["base"]


def _with_code(family: Any, standin: Path) -> Any:
    from dataclasses import replace

    return replace(family, standin=standin)


def test_edited_tensors_replace_generated_ones(tmp_path: Path) -> None:
    ones = np.ones(48, np.float32)
    stored = load_file(write_checkpoint(tmp_path, SPEC, 1, edited={NORM: ones}).path / WEIGHTS)
    generated = tiny_weights(SPEC, 1)
    assert {name for name, w in stored.items() if not np.array_equal(w, generated[name])} == {NORM}
    assert np.array_equal(stored[NORM], ones)


def test_bf16_holds_the_same_values(tmp_path: Path) -> None:
    wide = load_torch(write_checkpoint(tmp_path, SPEC, 1).path / WEIGHTS)
    checkpoint = write_checkpoint(tmp_path, SPEC, 1, Layout(dtype="bfloat16"))
    narrow = load_torch(checkpoint.path / WEIGHTS)
    assert {str(w.dtype) for w in narrow.values()} == {"torch.bfloat16"}
    assert set(narrow) == set(wide)
    assert all((narrow[name].float() == w).all() for name, w in wide.items())
    assert json.loads((checkpoint.path / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_shards_and_their_index_hold_every_tensor_once(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, SPEC, 1, Layout(shards=3))
    files = sorted(file.name for file in checkpoint.path.glob("*.safetensors"))
    assert files == [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    index = json.loads((checkpoint.path / "model.safetensors.index.json").read_text())
    generated = tiny_weights(SPEC, 1)
    assert index["metadata"] == {"total_size": sum(w.nbytes for w in generated.values())}
    assert set(index["weight_map"]) == set(generated)
    for file in files:
        stored = load_file(checkpoint.path / file)
        assert stored
        assert set(stored) == {name for name, where in index["weight_map"].items() if where == file}
        assert all(np.array_equal(w, generated[name]) for name, w in stored.items())


def test_a_disk_that_fills_up_leaves_nothing_half_written(tmp_path: Path) -> None:
    root = tmp_path / "root"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # config and code fit, the weights do not
    try:
        with pytest.raises(OSError, match="File too large"):
            write_checkpoint(root, SPEC, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(root.iterdir()) == []
    assert open_checkpoint(write_checkpoint(root, SPEC, 1).path).spec == SPEC


def test_writers_at_the_same_time_make_one_whole_checkpoint(tmp_path: Path) -> None:
    seeds = list(range(20))
    write = partial(write_checkpoint, tmp_path, SPEC)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        written = list(pool.map(write, seeds + seeds, chunksize=len(seeds)))
    assert written[: len(seeds)] == written[len(seeds) :]
    assert {file.name for file in tmp_path.iterdir()} == {checkpoint.identity for checkpoint in written}
    assert all(open_checkpoint(checkpoint.path).spec == SPEC for checkpoint in written[: len(seeds)])


def test_a_writer_that_comes_second_takes_what_the_first_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store._write_tensors

    def first_comes_meanwhile(*args: Any) -> None:
        monkeypatch.setattr(store, "_write_tensors", write)
        write_checkpoint(tmp_path, SPEC, 1)
        write(*args)

    monkeypatch.setattr(store, "_write_tensors", first_comes_meanwhile)
    checkpoint = write_checkpoint(tmp_path, SPEC, 1)
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.identity]
    assert open_checkpoint(checkpoint.path).spec == SPEC


# Opening


def test_a_brought_checkpoint_is_opened_and_named_by_its_content(brought: Path) -> None:
    before = open_checkpoint(brought)
    assert (before.path, before.spec, before.seed, before.layout) == (brought, SPEC, None, Layout())
    (brought / "notes.txt").write_text("not part of the model")
    assert open_checkpoint(brought) == before
    rewrite(brought, lambda tensors: tensors[NORM].__setitem__(0, 7.0))
    after_weights = open_checkpoint(brought).identity
    (brought / "modeling.py").write_text("x = 1\n")
    after_code = open_checkpoint(brought).identity
    reconfigure(brought, lambda config: config.update(rms_norm_eps=1e-5))
    after_config = open_checkpoint(brought).identity
    assert len({before.identity, after_weights, after_code, after_config}) == 4


def test_config_json_must_be_there(brought: Path) -> None:
    (brought / "config.json").unlink()
    assert message_of(brought) == f"config.json is missing, but a checkpoint directory needs it [{brought}]"
    nowhere = brought / "nowhere"
    assert message_of(nowhere) == f"config.json is missing, but a checkpoint directory needs it [{nowhere}]"


def test_config_json_must_be_json(brought: Path) -> None:
    file = brought / "config.json"
    file.write_text("{'vocab_size': 97}")
    assert message_of(brought) == (
        "config.json is not JSON: Expecting property name enclosed in double quotes: "
        f"line 1 column 2 (char 1) [{file}]"
    )


def test_config_json_must_be_text(brought: Path) -> None:
    file = brought / "config.json"
    file.write_bytes(b"\xff\xfe{}")
    assert message_of(brought) == (
        "config.json is not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte "
        f"[{file}]"
    )


def test_config_json_must_be_an_object(brought: Path) -> None:
    (brought / "config.json").write_text("[]")
    assert message_of(brought) == f"config.json = list, but should be an object [{brought / 'config.json'}]"


def test_config_json_must_name_the_family(brought: Path) -> None:
    reconfigure(brought, lambda config: config.pop("model_type"))
    assert message_of(brought) == f"model_type is missing, but names the family [{brought / 'config.json'}]"


@pytest.mark.parametrize("name", ["llama", None, ["plamo3"], {}])
def test_another_family_is_named_with_its_file(brought: Path, name: Any) -> None:
    reconfigure(brought, lambda config: config.update(model_type=name))
    assert (
        message_of(brought)
        == f"model_type = {name!r}, but should be plamo3 or gemma4_text or gemma4 [{brought / 'config.json'}]"
    )


def test_a_missing_key_is_named_with_its_file(brought: Path) -> None:
    reconfigure(brought, lambda config: config.pop("head_dim"))
    assert message_of(brought) == f"head_dim is missing, but plamo3 needs it [{brought / 'config.json'}]"


def test_heads_that_do_not_divide_are_named_with_their_file(brought: Path) -> None:
    reconfigure(brought, lambda config: config.update(num_key_value_heads=4))
    assert message_of(brought) == (
        "num_attention_heads = 6, but should be a multiple of num_key_value_heads (4) "
        f"[{brought / 'config.json'}]"
    )


def test_weights_must_be_there(brought: Path) -> None:
    (brought / WEIGHTS).unlink()
    assert (
        message_of(brought)
        == f"model.safetensors is missing, but a checkpoint directory needs it [{brought}]"
    )


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_truncated_file_is_named(brought: Path, length: int) -> None:
    file = brought / WEIGHTS
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(safetensors.SafetensorError) as theirs:
        load_file(file)
    assert (
        message_of(brought) == f"model.safetensors is not a whole safetensors file: {theirs.value} [{file}]"
    )


def test_a_missing_tensor_is_named(brought: Path) -> None:
    name = "model.layers.layers.1.mixer.k_norm.weight"
    rewrite(brought, lambda tensors: tensors.__delitem__(name))
    assert message_of(brought) == f"{name} is missing, but its config.json asks for [16] [{brought}]"


def test_a_missing_shard_leaves_tensors_missing(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, SPEC, 1, Layout(shards=3)).path
    (path / "model-00001-of-00003.safetensors").unlink()
    assert message_of(path) == (
        f"model.embed_tokens.weight is missing, but its config.json asks for [97, 48] [{path}]"
    )


def test_a_tensor_of_another_shape_is_named(brought: Path) -> None:
    name = "model.layers.layers.1.mixer.qkv_proj.weight"
    rewrite(brought, lambda tensors: tensors.update({name: tensors[name].T.copy()}))
    assert message_of(brought) == f"{name}: shape = [48, 160], but should be [160, 48] [{brought / WEIGHTS}]"


def test_an_extra_tensor_is_named(brought: Path) -> None:
    rewrite(brought, lambda tensors: tensors.update({"lm_head.weight": np.zeros((112, 48), np.float32)}))
    assert message_of(brought) == f"lm_head.weight is not a parameter of plamo3 [{brought / WEIGHTS}]"


def test_a_tensor_in_two_files_is_named(brought: Path) -> None:
    save_file({NORM: np.zeros(48, np.float32)}, brought / "more.safetensors")
    assert message_of(brought) == (
        f"{NORM} is stored twice: in model.safetensors and more.safetensors [{brought}]"
    )
