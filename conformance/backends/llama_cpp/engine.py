"""llama.cpp inside this process, by its C functions: the Python class above them hides sequences.

Imported only in the worker.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp as c
import numpy as np
from gguf import GGMLQuantizationType

from conformance.backends.llama_cpp.steps import Clear, Decode, Move, Plan, Remove
from conformance.errors import Refused, Unsupported

__all__ = ["Model"]

_CACHE_TYPES = {"float32": GGMLQuantizationType.F32, "bfloat16": GGMLQuantizationType.BF16}
# llama.cpp rounds the cells of a sequence's cache up to this many.
_CELLS = 256
_ERROR, _CONTINUED = 4, 5
_INVALID_BATCH = -1

_complaints: deque[str] = deque(maxlen=20)


@c.llama_log_callback  # type: ignore[untyped-decorator]
def _listen(level: int, text: bytes, _: Any) -> None:
    """Errors go to the log, and are kept to be quoted; the rest is silence."""
    if level == _ERROR or (level == _CONTINUED and _complaints):
        line = text.decode(errors="replace")
        _complaints.append(line.strip())
        sys.stderr.write(line)


c.llama_log_set(_listen, ctypes.c_void_p(0))
c.llama_backend_init()


class Model:
    """A GGUF file, loaded on the CPU."""

    def __init__(self, file: Path, dtype: str, *, swa_full: bool, threads: int) -> None:
        """Load it.

        Raises:
            RuntimeError: llama.cpp does not load it, in its own words.
        """
        self._dtype = dtype
        self._swa_full = swa_full
        self._threads = threads
        params = c.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = c.LLAMA_LOAD_MODE_NONE  # the file goes away
        _complaints.clear()
        self._model = c.llama_model_load_from_file(str(file).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load the model: {_complaint()}")
        self._vocabulary: int = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self._model))

    def run(self, plan: Plan, shape: tuple[int, int]) -> np.ndarray:
        """float32 logits [B, T, V] of a plan; 0 in cells that are not fed.

        Raises:
            Refused: a sequence cannot be cut.
            Unsupported: llama.cpp calls a batch invalid.
            RuntimeError: it fails to compute one.
        """
        logits = np.zeros((*shape, self._vocabulary), np.float32)
        with self._context(plan, shape[1]) as context:
            memory = c.llama_get_memory(context)
            for call in plan.calls:
                match call:
                    case Decode():
                        self._decode(context, call, logits)
                    case Remove(sequence, position):
                        if not c.llama_memory_seq_rm(memory, sequence, position, -1):
                            raise Refused(f"llama.cpp does not cut a sequence at position {position}")
                    case Clear():
                        c.llama_memory_clear(memory, True)
                    case Move(copies, dropped):
                        for source, target in copies:
                            c.llama_memory_seq_cp(memory, source, target, -1, -1)
                        for sequence in dropped:
                            c.llama_memory_seq_rm(memory, sequence, -1, -1)
        return logits

    def close(self) -> None:
        """Free it."""
        c.llama_model_free(self._model)

    @contextmanager
    def _context(self, plan: Plan, width: int) -> Iterator[Any]:
        params = c.llama_context_default_params()
        params.n_seq_max = plan.sequences
        params.n_ctx = plan.sequences * -(-width // _CELLS) * _CELLS
        params.n_batch = plan.batch
        params.n_threads = params.n_threads_batch = self._threads
        params.flash_attn_type = c.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = _CACHE_TYPES[self._dtype]
        params.swa_full = self._swa_full
        _complaints.clear()
        context = c.llama_init_from_model(self._model, params)
        if not context:
            raise RuntimeError(f"llama.cpp makes no context: {_complaint()}")
        try:
            yield context
        finally:
            c.llama_free(context)

    def _decode(self, context: Any, call: Decode, logits: np.ndarray) -> None:
        batch = c.llama_batch_init(len(call.tokens), 0, 1)
        try:
            batch.n_tokens = len(call.tokens)
            for place, token in enumerate(call.tokens):
                batch.token[place] = token.id
                batch.pos[place] = token.position
                batch.n_seq_id[place] = 1
                batch.seq_id[place][0] = token.sequence
                batch.logits[place] = True
            _complaints.clear()
            status = c.llama_decode(context, batch)
        finally:
            c.llama_batch_free(batch)
        if status == _INVALID_BATCH:
            raise Unsupported(f"llama.cpp calls the batch invalid: {_complaint()}")
        if status:
            raise RuntimeError(f"llama_decode returned {status}: {_complaint()}")
        for place, token in enumerate(call.tokens):
            row = c.llama_get_logits_ith(context, place)
            logits[token.row, token.column] = np.ctypeslib.as_array(row, (self._vocabulary,))


def _complaint() -> str:
    return " ".join(_complaints) or "it does not say why"
