from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch

from conformance.checkpoints.container import read_containers, write_container
from conformance.checkpoints.random import bell, round_to_bfloat16
from conformance.errors import BadInput

TENSORS = {
    "b": round_to_bfloat16(bell("b", (3, 5))),
    "a": round_to_bfloat16(bell("a", (7,))),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize(("dtype", "code", "size"), [("float32", "F32", 4), ("bfloat16", "BF16", 2)])
def test_a_file_is_header_length_then_header_then_tensors(
    tmp_path: Path, dtype: str, code: str, size: int
) -> None:
    file = tmp_path / "x.safetensors"
    written = write_container(file, TENSORS, dtype)
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": code, "shape": [3, 5], "data_offsets": [0, 15 * size]},
        "a": {"dtype": code, "shape": [7], "data_offsets": [15 * size, 22 * size]},
        "empty": {"dtype": code, "shape": [0, 4], "data_offsets": [22 * size, 22 * size]},
    }
    assert written == 22 * size == len(content) - 8 - length


def test_the_library_reads_the_same_float32_values(tmp_path: Path) -> None:
    write_container(tmp_path / "x", TENSORS, "float32")
    loaded = load_file(tmp_path / "x")
    assert set(loaded) == set(TENSORS)
    for name, values in TENSORS.items():
        assert loaded[name].dtype == np.float32
        assert np.array_equal(loaded[name], values)


def test_the_library_reads_the_same_bfloat16_values(tmp_path: Path) -> None:
    write_container(tmp_path / "x", TENSORS, "bfloat16")
    for name, w in load_torch(tmp_path / "x").items():
        assert w.dtype == torch.bfloat16
        assert np.array_equal(w.float().numpy(), TENSORS[name])


def test_loaders_of_torch_accept_the_metadata(tmp_path: Path) -> None:
    write_container(tmp_path / "x", TENSORS, "float32")
    with safetensors.safe_open(tmp_path / "x", framework="pt") as stored:
        assert stored.metadata() == {"format": "pt"}


def test_equal_tensors_give_equal_bytes_whatever_their_memory_layout(tmp_path: Path) -> None:
    values = TENSORS["b"]
    transposed = np.asfortranarray(values)
    big_endian = values.astype(">f4")
    for number, tensor in enumerate((values, transposed, big_endian)):
        write_container(tmp_path / str(number), {"b": tensor}, "float32")
    assert len({(tmp_path / str(number)).read_bytes() for number in range(3)}) == 1


def test_bfloat16_refuses_values_that_it_would_have_to_round(tmp_path: Path) -> None:
    file = tmp_path / "x"
    with pytest.raises(ValueError, match=r"^a: values are no BF16 values; round them first$"):
        write_container(file, {"b": TENSORS["b"], "a": np.array([1.001], np.float32)}, "bfloat16")
    assert not file.exists()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_written_is_read_from_all_files(tmp_path: Path, dtype: str) -> None:
    names = list(TENSORS)
    for number, members in enumerate((names[:1], names[1:])):
        file = tmp_path / f"model-{number}.safetensors"
        write_container(file, {name: TENSORS[name] for name in members}, dtype)
    (tmp_path / "config.json").write_text("{}")
    read = read_containers(tmp_path)
    assert set(read) == set(TENSORS)
    for name, values in TENSORS.items():
        assert read[name].dtype == np.float32
        assert np.array_equal(read[name], values)


def test_other_dtypes_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"x": np.zeros(3, np.float16)}, file)
    with pytest.raises(BadInput) as caught:
        read_containers(tmp_path)
    assert str(caught.value) == f"dtype = 'F16', but should be F32 or BF16 [x in {file}]"
