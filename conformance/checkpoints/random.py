"""Random tensors that are bit-identical on every machine and with every library version.

They are built from the raw output of the counter-based Philox4x64-10 generator (Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011) by integer arithmetic and single IEEE 754
operations; no library's normal() is involved, whose algorithm may change.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["bell", "raw_words", "round_to_bfloat16"]

# The four 16-bit fields of a word sum to an approximately normal integer (Irwin-Hall, n = 4) with
# mean 4 * 65535 / 2 and variance 4 * (65536**2 - 1) / 12.
_MEAN = 131_070
_STANDARD_DEVIATION = math.sqrt((65_536**2 - 1) // 3)


def raw_words(name: str, count: int) -> np.ndarray:
    """`count` uint64 words of the Philox stream that `name` keys."""
    digest = hashlib.sha256(name.encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)
    return np.asarray(np.random.Philox(key=key).random_raw(count), dtype=np.uint64)


def bell(name: str, shape: Sequence[int]) -> np.ndarray:
    """Approximately standard normal float64 values of `shape`, bounded by 3.47."""
    count = int(np.prod(shape, dtype=np.int64))
    words = raw_words(name, count)
    mask = np.uint64(0xFFFF)
    total = sum((((words >> np.uint64(16 * i)) & mask).astype(np.int64) for i in range(4)), np.int64(0))
    return ((total - _MEAN) / _STANDARD_DEVIATION).reshape(tuple(shape))


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round to the nearest BF16 value, ties to even; the result is float32 holding BF16 values.

    Finite input only.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
    return (rounded & np.uint64(0xFFFF0000)).astype(np.uint32).view(np.float32).reshape(np.shape(values))
