"""The safetensors container, written byte for byte by its format description.

Checkpoints are named by their content, so the bytes must not depend on a library's version; the
library reads them (and does so in every worker).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

__all__ = ["write_container"]

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


def _encode(name: str, values: np.ndarray, dtype: str) -> bytes:
    plain = np.ascontiguousarray(values, dtype="<f4")
    if dtype == "float32":
        return plain.tobytes()
    bits = plain.view("<u4")
    if (bits & np.uint32(0xFFFF)).any():
        raise ValueError(f"{name}: values are no BF16 values; round them first")
    return (bits >> np.uint32(16)).astype("<u2").tobytes()
