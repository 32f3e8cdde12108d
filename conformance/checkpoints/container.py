"""The safetensors container, written byte for byte by its format description.

Checkpoints are named by their content, so the bytes must not depend on a library's version; the
library reads them (and does so in every worker). Its NumPy side has no BF16, hence a reader as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from conformance.errors import BadInput

__all__ = ["read_containers", "write_container"]

_CODES = {"float32": "F32", "bfloat16": "BF16"}
_ALIGNMENT = 8


def write_container(file: Path, tensors: Mapping[str, np.ndarray], dtype: str) -> int:
    """Write float32 arrays as `dtype` (`float32` or `bfloat16`); returns the bytes of tensor data.

    BF16 keeps the upper half of each float32: the arrays must hold BF16 values already.

    Raises:
        ValueError: they do not.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    offset = 0
    for name, values in tensors.items():
        blob = _encode(name, values, dtype)
        header[name] = {
            "dtype": _CODES[dtype],
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    return offset


def read_containers(directory: Path) -> dict[str, np.ndarray]:
    """Every tensor of a directory's safetensors files, F32 or BF16, as float32 arrays.

    Raises:
        BadInput: a tensor has another dtype.
    """
    tensors: dict[str, np.ndarray] = {}
    for file in sorted(directory.glob("*.safetensors")):
        content = file.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8:start]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            where = f"{name} in {file}"
            tensors[name] = _decode(content[start + begin : start + end], entry["dtype"], where).reshape(
                entry["shape"]
            )
    return tensors


def _decode(blob: bytes, code: str, where: str) -> np.ndarray:
    if code == "F32":
        return np.frombuffer(blob, "<f4").astype(np.float32)
    if code == "BF16":
        return (np.frombuffer(blob, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise BadInput.value("dtype", code, "F32 or BF16", where)


def _encode(name: str, values: np.ndarray, dtype: str) -> bytes:
    plain = np.ascontiguousarray(values, dtype="<f4")
    if dtype == "float32":
        return plain.tobytes()
    bits = plain.view("<u4")
    if (bits & np.uint32(0xFFFF)).any():
        raise ValueError(f"{name}: values are no BF16 values; round them first")
    return (bits >> np.uint32(16)).astype("<u2").tobytes()
