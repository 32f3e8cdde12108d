"""vLLM inside this process: started small and quickly, stepped by hand, closed without a trace.

Imported only after `conformance.backends.vllm.adapter` has set the environment. Where a public argument
is not enough, an attribute of the engine's own is changed; each such place says why, and is left alone
when a version of vLLM does not have it, except where the meaning of a run would change: there it raises.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import vllm.v1.engine.core as engine_core
from vllm import EngineArgs, LLMEngine, ModelRegistry, SamplingParams
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from conformance.backends.vllm.steps import Plan, Row

__all__ = ["Capacity", "Engine", "ForcedTokens"]

FORCED = "forced_tokens"
# The smallest block of the KV cache for which the CPU kernels do not fall back to others: short rows
# then already span several blocks.
CPU_BLOCK = 32


@dataclass(frozen=True)
class Capacity:
    """What an engine is built for.

    Attributes:
        rows: requests at a time.
        length: tokens of a request, the one that vLLM samples at its end included.
    """

    rows: int = 8
    length: int = 128

    def covering(self, rows: int, length: int, positions: int | None = None) -> Capacity:
        """This capacity, doubled until `rows` rows of `length` tokens fit, but cut to `positions` tokens."""
        most, longest = self.rows, self.length
        while most < rows:
            most *= 2
        while longest < length + 1:
            longest *= 2
        return Capacity(most, longest if positions is None else min(longest, positions + 1))


class ForcedTokens(AdapterLogitsProcessor):  # type: ignore[misc]
    """Makes decoding choose the tokens that a request names, one after the other.

    It sees logits after vLLM has set the raw ones aside (logprobs_mode="raw_logits").
    """

    def is_argmax_invariant(self) -> bool:
        """Forcing decides the token, so greedy sampling must not skip it."""
        return False

    def new_req_logits_processor(
        self, params: Any
    ) -> Callable[[list[int], torch.Tensor], torch.Tensor] | None:
        """A function of (tokens decoded so far, logits [V]) for a request that forces tokens."""
        forced = (params.extra_args or {}).get(FORCED)
        if not forced:
            return None

        def force(decoded: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(decoded) >= len(forced):
                return logits
            only = torch.full_like(logits, -torch.inf)
            only[forced[len(decoded)]] = 0.0
            return only

        return force


class Engine:
    """One checkpoint in one dtype, ready to run plans.

    Attributes:
        capacity: the rows and tokens that it was built for.
    """

    def __init__(self, checkpoint: Path, dtype: str, capacity: Capacity) -> None:
        """Load a checkpoint directory.

        Raises:
            Exception: whatever vLLM raises when it cannot serve the checkpoint.
        """
        self.capacity = capacity
        _import_architectures(checkpoint)
        _prepare_process()
        with _cheap_collections():
            config = _engine_args(checkpoint, dtype, capacity).create_engine_config(UsageContext.LLM_CLASS)
            config.cache_config.kv_cache_memory_bytes = _cache_bytes(config, capacity)
            with _short_yarn_tables(capacity.length):
                self._engine = LLMEngine.from_vllm_config(config, disable_log_stats=True)
        self._vocabulary: int = config.model_config.get_vocab_size()
        self._scheduler: Any = self._engine.engine_core.engine_core.scheduler
        self._scheduled: Mapping[str, int] = {}
        self._record_schedules()
        self._runs = 0

    def run(self, plan: Plan) -> np.ndarray:
        """float32 logits [B, T, V] of a plan; 0 in the cells outside a row.

        Raises:
            RuntimeError: the engine did not compute the chunks or decode the tokens that it was told to.
        """
        names = [f"{self._runs}-{row}" for row in range(len(plan.rows))]
        self._runs += 1
        # vLLM steps requests under names of its own that begin with ours.
        inner = [
            self._engine.add_request(name, *_request(row)) for name, row in zip(names, plan.rows, strict=True)
        ]
        outputs: dict[str, Any] = {}
        for step, columns in enumerate(plan.steps):
            wanted = {name: n for name, n in zip(inner, plan.scheduled(step), strict=True) if n}
            if wanted:
                outputs.update((output.request_id, output) for output in self._step(columns, wanted))
        if self._engine.has_unfinished_requests():
            raise RuntimeError(f"vLLM has requests left after {len(plan.steps)} steps, but should have none")
        logits = np.zeros((len(plan.rows), sum(plan.steps), self._vocabulary), np.float32)
        for index, (name, row) in enumerate(zip(names, plan.rows, strict=True)):
            _read(outputs[name], row, logits[index, : row.length])
        return logits

    def close(self) -> None:
        """Free the weights and the KV cache."""
        with _cheap_collections():
            self._engine.engine_core.shutdown()
            del self._engine, self._scheduler
            gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        """What decides this engine's arithmetic: attention backend, dtypes, block size, model runner."""
        config = self._engine.vllm_config
        worker = self._engine.engine_core.engine_core.model_executor.driver_worker.worker
        layers = config.compilation_config.static_forward_context.values()
        backends = {layer.attn_backend.get_name() for layer in layers if hasattr(layer, "attn_backend")}
        kernels = {str(layer.isa) for layer in layers if hasattr(layer, "isa")}
        return {
            "platform": current_platform.device_type,
            "cpu capability": torch.backends.cpu.get_cpu_capability(),
            "attention": sorted(backends),
            "attention kernels": sorted(kernels),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "kv cache dtype": str(config.cache_config.cache_dtype),
            "kv cache block": config.cache_config.block_size,
            "model runner": type(worker.model_runner).__name__,
            "compiled": False,
        }

    def _record_schedules(self) -> None:
        # What the scheduler decided is shown nowhere else once a request has finished.
        schedule = self._scheduler.schedule

        def recorded(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self._scheduled = dict(output.num_scheduled_tokens)
            return output

        self._scheduler.schedule = recorded

    def _step(self, columns: int, wanted: Mapping[str, int]) -> list[Any]:
        """One engine step over `columns` columns that computes `wanted` tokens of each request."""
        # Arguments of vLLM's own, read anew at every step. With one request left vLLM ignores the limit
        # for each request, so the budget of the step must hold it to the chunk.
        self._scheduler.scheduler_config.long_prefill_token_threshold = columns
        self._scheduler.max_num_scheduled_tokens = columns * len(wanted)
        self._scheduled = {}
        outputs: list[Any] = self._engine.step()
        if self._scheduled != wanted:
            raise RuntimeError(
                f"tokens of each request in one step = {self._scheduled}, but should be {wanted}"
            )
        return outputs


def _read(output: Any, row: Row, logits: np.ndarray) -> None:
    """Copy one request's raw logits into `logits` [row.length, V].

    Prompt position t is entry t + 1 of the prompt's; the last one comes with the first sampled token.
    """
    (completion,) = output.outputs
    decoded = tuple(completion.token_ids)
    if decoded[: len(row.forced)] != row.forced:
        raise RuntimeError(f"decoded tokens = {decoded}, but should begin with {row.forced}")
    first_sampled = len(row.prompt) - 1
    _scatter(output.prompt_logprobs, 1, logits[:first_sampled])
    _scatter(completion.logprobs, 0, logits[first_sampled:])


def _request(row: Row) -> tuple[Any, Any]:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=len(row.forced) + 1,
        ignore_eos=True,
        prompt_logprobs=-1,
        logprobs=-1,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        extra_args={FORCED: list(row.forced)},
    )
    return {"type": "token", "prompt_token_ids": list(row.prompt)}, params


def _scatter(entries: Any, first: int, logits: np.ndarray) -> None:
    """Flat entries, from position `first` on, to rows of `logits` [positions, V]."""
    if len(entries) != first + len(logits):
        raise RuntimeError(f"positions with logits = {len(entries)}, but should be {first + len(logits)}")
    if not len(logits):
        return
    logits[:] = np.nan  # an entry that vLLM leaves out must not pass for a logit
    starts = np.asarray(entries.start_indices[first:])
    counts = np.asarray(entries.end_indices[first:]) - starts
    position = np.repeat(np.arange(len(logits)), counts)
    logits[position, entries.token_ids[starts[0] :]] = entries.logprobs[starts[0] :]


def _engine_args(checkpoint: Path, dtype: str, capacity: Capacity) -> Any:
    return EngineArgs(
        model=str(checkpoint),
        dtype=dtype,
        trust_remote_code=True,
        skip_tokenizer_init=True,
        generation_config="vllm",
        load_format="safetensors",
        use_tqdm_on_load=False,
        enforce_eager=True,
        max_logprobs=-1,
        logprobs_mode="raw_logits",
        logits_processors=[ForcedTokens],
        enable_prefix_caching=False,
        enable_chunked_prefill=True,
        async_scheduling=False,
        max_model_len=capacity.length,
        max_num_seqs=capacity.rows,
        max_num_batched_tokens=capacity.rows * capacity.length,
        block_size=CPU_BLOCK if current_platform.is_cpu() else None,
        seed=0,
        disable_log_stats=True,
    )


def _cache_bytes(config: Any, capacity: Capacity) -> int:
    """Bytes of KV cache for `capacity`, twice what full layers need: groups of layers are padded."""
    model = config.model_config
    block = config.cache_config.block_size or 128
    tokens = capacity.rows * (capacity.length + 2 * block)
    heads = model.get_total_num_kv_heads() * model.get_head_size()
    return int(2 * tokens * model.get_total_num_hidden_layers() * 2 * heads * model.dtype.itemsize)


def _import_architectures(checkpoint: Path) -> None:
    # vLLM asks a subprocess that imports it anew about a model class that it meets for the first time
    # on a machine, to keep CUDA out of this process. Here the class is needed in this process anyway.
    for name in json.loads((checkpoint / "config.json").read_text()).get("architectures", ()):
        entry = ModelRegistry.models.get(name)
        if hasattr(entry, "module_name") and hasattr(entry, "load_model_cls"):
            ModelRegistry.register_model(name, entry.load_model_cls())


def _nothing(*_: Any, **__: Any) -> None:
    return None


@contextmanager
def _cheap_collections() -> Iterator[None]:
    """Keep vLLM from moving what was imported in and out of the collector's reach.

    It freezes and unfreezes the whole heap and collects several times for each engine; over a million
    objects of imported modules that is 2 s. Engines stay collectable, the modules stay frozen.
    """
    freeze, unfreeze = gc.freeze, gc.unfreeze
    gc.freeze = gc.unfreeze = _nothing
    try:
        yield
    finally:
        gc.freeze, gc.unfreeze = freeze, unfreeze


@cache
def _prepare_process() -> None:
    """Do what must happen once in a process, before its first engine."""
    # vLLM takes torch.set_num_threads away when it starts, and OMP_NUM_THREADS is too late for a torch
    # that somebody has imported before.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # Closing one engine would destroy the process group that all engines of the process share.
    if not hasattr(engine_core, "cleanup_dist_env_and_memory"):
        raise RuntimeError(
            "vllm.v1.engine.core has no cleanup_dist_env_and_memory, but several engines need it still"
        )
    atexit.register(engine_core.cleanup_dist_env_and_memory)
    engine_core.cleanup_dist_env_and_memory = _nothing
    # The CPU replacements of Triton kernels are searched for in every imported module, and wrapped once
    # more, at each start.
    if hasattr(current_platform, "register_triton_kernel_overrides"):
        current_platform.register_triton_kernel_overrides = cache(
            current_platform.register_triton_kernel_overrides
        )
    gc.collect()
    gc.freeze()


@contextmanager
def _short_yarn_tables(length: int) -> Iterator[None]:
    """Cut the cos/sin table of YaRN to the positions that an engine can reach.

    vLLM tabulates original length x factor positions, a million for a 256-fold extension: 1 s and 128 MiB
    an engine. The rows that remain are bit-equal; frequencies are computed before the length is touched.
    """
    try:
        from vllm.model_executor.layers.rotary_embedding.yarn_scaling_rope import (
            YaRNScalingRotaryEmbedding as Yarn,
        )
    except ImportError:
        yield
        return
    compute = getattr(Yarn, "_compute_cos_sin_cache", None)
    if compute is None:
        yield
        return
    rows = -(-length // 64) * 64  # whole vector registers, so that no row is computed by other instructions

    def compute_short(self: Any) -> Any:
        full, factor = self.max_position_embeddings, self.scaling_factor
        frequencies = self._compute_inv_freq(factor)
        self._compute_inv_freq = lambda _: frequencies
        self.max_position_embeddings = min(full, rows / factor)
        try:
            return compute(self)
        finally:
            self.max_position_embeddings = full
            del self._compute_inv_freq

    Yarn._compute_cos_sin_cache = compute_short
    try:
        yield
    finally:
        Yarn._compute_cos_sin_cache = compute
