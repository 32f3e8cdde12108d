"""GGUF files of checkpoints: the family says what is in them, this writes it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from conformance.checkpoints.container import read_containers
from conformance.checkpoints.store import read_spec
from conformance.errors import Unsupported
from conformance.families import family_of

__all__ = ["write_gguf"]

_MATRICES = {"float32": gguf.GGMLQuantizationType.F32, "bfloat16": gguf.GGMLQuantizationType.BF16}


def write_gguf(checkpoint: Path, file: Path, dtype: str) -> None:
    """Write a checkpoint directory as one GGUF file.

    As llama.cpp's converter does, only matrices are stored in the dtype; vectors are always F32.

    Raises:
        Unsupported: the checkpoint's family has no GGUF form.
    """
    spec = read_spec(checkpoint)
    family = family_of(spec.family)
    if family.gguf is None:
        raise Unsupported(f"{family.name} has no GGUF form here")
    form = import_module(family.gguf)
    writer = gguf.GGUFWriter(file, form.ARCHITECTURE)
    for key, value in form.metadata(spec).items():
        _add(writer, key, value)
    # The text side is not tested: no vocabulary, only its size.
    writer.add_tokenizer_model("none")
    for name, values in form.tensors(spec, read_containers(checkpoint)).items():
        kind = _MATRICES[dtype] if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        plain = np.ascontiguousarray(values, np.float32)
        stored = plain if kind is _MATRICES["float32"] else gguf.quants.quantize(plain, kind)
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list() | tuple():
            writer.add_array(key, list(value))
        case _:
            raise TypeError(f"{key} = {value!r}, but should be a truth value, number, text or list of such")
