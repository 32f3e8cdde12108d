"""The engine's own part, on a vLLM that is a stand-in: what is asked of it, and what is read from it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conformance.backends.vllm.steps import Plan, Row, plan
from conformance.feeds import Feed, Forward

ENGINE = "conformance.backends.vllm.engine"
VOCABULARY = 4
# What engine.py imports of vLLM; nothing of it is called here.
NAMES = {
    "vllm": ("EngineArgs", "LLMEngine", "ModelRegistry", "SamplingParams"),
    "vllm.v1": (),
    "vllm.v1.engine": (),
    "vllm.v1.engine.core": (),
    "vllm.platforms": ("current_platform",),
    "vllm.sampling_params": ("RequestOutputKind",),
    "vllm.usage": (),
    "vllm.usage.usage_lib": ("UsageContext",),
    "vllm.v1.sample": (),
    "vllm.v1.sample.logits_processor": ("AdapterLogitsProcessor",),
}


class Params(SimpleNamespace):
    """SamplingParams: whatever it is given."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """The module, imported beside modules that only have the names."""
    package = importlib.import_module("conformance.backends.vllm")
    with pytest.MonkeyPatch.context() as patching:
        for name, members in NAMES.items():
            module = ModuleType(name)
            for member in members:
                setattr(module, member, type(member, (), {}))
            patching.setitem(sys.modules, name, module)
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, module)
        sys.modules["vllm"].SamplingParams = Params  # type: ignore[attr-defined]
        kinds = SimpleNamespace(FINAL_ONLY="final only")
        sys.modules["vllm.sampling_params"].RequestOutputKind = kinds  # type: ignore[attr-defined]
        patching.delitem(sys.modules, ENGINE, raising=False)
        yield importlib.import_module(ENGINE)
        del sys.modules[ENGINE], package.engine


class TestCapacity:
    def test_doubled_until_the_feed_fits_with_the_token_after_it(self, engine: Any) -> None:
        small = engine.Capacity(rows=8, length=128)
        assert engine.Capacity() == small
        assert small.covering(8, 127) == small
        assert small.covering(1, 128) == engine.Capacity(8, 256)
        assert small.covering(9, 1) == engine.Capacity(16, 128)
        assert small.covering(40, 1000) == engine.Capacity(64, 1024)

    def test_no_longer_than_the_model_s_positions(self, engine: Any) -> None:
        assert engine.Capacity().covering(1, 5, positions=20) == engine.Capacity(8, 21)
        assert engine.Capacity().covering(1, 20, positions=20) == engine.Capacity(8, 21)


class TestForcedTokens:
    def test_the_next_token_named_is_the_only_one_left(self, engine: Any) -> None:
        force = engine.ForcedTokens().new_req_logits_processor(Params(extra_args={"forced_tokens": [2, 0]}))
        logits = torch.tensor([1.0, 2.0, 3.0])
        assert force([], logits).tolist() == [-np.inf, -np.inf, 0.0]
        assert force([2], logits).tolist() == [0.0, -np.inf, -np.inf]
        assert force([2, 0], logits) is logits
        assert logits.tolist() == [1.0, 2.0, 3.0]

    @pytest.mark.parametrize("extra", [None, {}, {"forced_tokens": []}])
    def test_a_request_that_names_none_is_left_alone(self, engine: Any, extra: Any) -> None:
        assert engine.ForcedTokens().new_req_logits_processor(Params(extra_args=extra)) is None

    def test_it_decides_the_token(self, engine: Any) -> None:
        assert engine.ForcedTokens().is_argmax_invariant() is False


@dataclass
class Entries:
    """Flat logprobs: for each position the tokens in some order of their own, and their logits."""

    positions: Sequence[dict[int, float] | None]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def end_indices(self) -> list[int]:
        return np.cumsum([len(entry or {}) for entry in self.positions]).tolist()  # type: ignore[no-any-return]

    @property
    def start_indices(self) -> list[int]:
        return [0, *self.end_indices[:-1]]

    @property
    def token_ids(self) -> list[int]:
        return [token for entry in self.positions for token in entry or {}]

    @property
    def logprobs(self) -> list[float]:
        return [value for entry in self.positions for value in (entry or {}).values()]


def logits_after(tokens: tuple[int, ...]) -> np.ndarray:
    """What the stand-in computes: every logit tells the tokens that came before it."""
    return np.float32(100 * len(tokens) + 10 * tokens[-1]) + np.arange(VOCABULARY, dtype=np.float32)


def entry(tokens: tuple[int, ...]) -> dict[int, float]:
    """One position's entry, the sampled token first, as vLLM has it."""
    values = logits_after(tokens)
    order = [2, 0, 1, 3]
    return {token: float(values[token]) for token in order}


@dataclass
class Request:
    """A request on its way."""

    prompt: tuple[int, ...]
    forced: tuple[int, ...]
    computed: int = 0
    decoded: tuple[int, ...] = ()

    @property
    def known(self) -> tuple[int, ...]:
        return (*self.prompt, *self.decoded)

    @property
    def finished(self) -> bool:
        return len(self.decoded) > len(self.forced)


@dataclass
class Llm:
    """Schedules and steps as vLLM does: a prompt in chunks, then one token a step."""

    requests: dict[str, Request] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)
    stubborn: int = 0
    forgetful: bool = False
    scheduler_config: Any = field(default_factory=SimpleNamespace)
    max_num_scheduled_tokens: int = 0

    def add_request(self, name: str, prompt: Mapping[str, Any], params: Params) -> str:
        self.asked.append((name, prompt, params))
        forced = tuple(params.extra_args["forced_tokens"])
        self.requests[f"{name}-inner"] = Request(tuple(prompt["prompt_token_ids"]), forced)
        return f"{name}-inner"

    def schedule(self) -> Any:
        budget, wanted = self.max_num_scheduled_tokens, {}
        for name, request in self.requests.items():
            most = self.stubborn or self.scheduler_config.long_prefill_token_threshold
            left = len(request.known) - request.computed
            wanted[name] = min(left, most, budget)
            budget -= wanted[name]
        return SimpleNamespace(num_scheduled_tokens=wanted)

    def step(self) -> list[Any]:
        outputs = []
        for name, count in self.schedule().num_scheduled_tokens.items():
            request = self.requests[name]
            request.computed += count
            if request.computed == len(request.known):
                following = request.forced[len(request.decoded) :]
                request.decoded += following[:1] if following and not self.forgetful else (0,)
            if request.finished:
                outputs.append(self.output(name, request))
        self.requests = {name: r for name, r in self.requests.items() if not r.finished}
        return outputs

    def output(self, name: str, request: Request) -> Any:
        prompt = request.prompt
        told = [entry(prompt[:t]) if t else None for t in range(len(prompt))]
        after = [entry((*prompt, *request.decoded[:t])) for t in range(len(request.decoded))]
        completion = SimpleNamespace(token_ids=list(request.decoded), logprobs=Entries(after))
        return SimpleNamespace(
            request_id=name.removesuffix("-inner"), outputs=[completion], prompt_logprobs=Entries(told)
        )

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)


def engine_on(module: Any, llm: Llm) -> Any:
    """An Engine as it is once it was built, on a stand-in of vLLM's."""
    made = object.__new__(module.Engine)
    made.capacity = module.Capacity()
    made._engine, made._scheduler, made._vocabulary = llm, llm, VOCABULARY
    made._scheduled, made._runs = {}, 0
    made._record_schedules()
    return made


ROWS = Feed(
    tokens=((3, 1, 2, 1, 0, 2), (2, 0, 1, 3, 2, 2), (1, 3, 1, 0, 0, 3)),
    steps=(Forward(6),),
    lengths=(2, 6, 4),
)


class TestRuns:
    @pytest.mark.parametrize("chunks", [[6], [3, 3], [3, 1, 1, 1], [1] * 6, [2, 1, 2, 1]], ids=str)
    def test_every_position_has_its_logits(self, engine: Any, chunks: list[int]) -> None:
        feed = ROWS.split(chunks)
        logits = engine_on(engine, Llm()).run(plan(feed))
        assert (logits.shape, logits.dtype) == ((3, 6, VOCABULARY), np.float32)
        for row, cells in enumerate(feed.real):
            for column in range(feed.width):
                want = logits_after(feed.tokens[row][: column + 1]) if column in cells else np.zeros(4)
                np.testing.assert_array_equal(logits[row, column], want)

    def test_what_a_request_asks_for(self, engine: Any) -> None:
        llm = Llm()
        made = engine_on(engine, llm)
        made.run(Plan((Row((3, 1), (2, 0)),), (2, 1, 1)))
        made.run(Plan((Row((1,), ()),), (1,)))
        (name, prompt, params), (other, _, _) = llm.asked
        assert name != other
        assert prompt == {"type": "token", "prompt_token_ids": [3, 1]}
        assert vars(params) == {
            "temperature": 0.0,
            "max_tokens": 3,
            "ignore_eos": True,
            "prompt_logprobs": -1,
            "logprobs": -1,
            "flat_logprobs": True,
            "detokenize": False,
            "output_kind": "final only",
            "extra_args": {"forced_tokens": [2, 0]},
        }

    def test_other_chunks_than_those_asked_for(self, engine: Any) -> None:
        with pytest.raises(RuntimeError) as caught:
            engine_on(engine, Llm(stubborn=2)).run(Plan((Row((3, 1, 2), ()),), (3,)))
        assert str(caught.value) == (
            "tokens of each request in one step = {'0-0-inner': 2}, but should be {'0-0-inner': 3}"
        )

    def test_other_tokens_than_those_forced(self, engine: Any) -> None:
        with pytest.raises(RuntimeError) as caught:
            engine_on(engine, Llm(forgetful=True)).run(Plan((Row((3,), (2, 1)),), (1, 1, 1)))
        assert str(caught.value) == "decoded tokens = (0, 0, 0), but should begin with (2, 1)"

    def test_a_request_that_is_left_over(self, engine: Any) -> None:
        with pytest.raises(RuntimeError) as caught:
            engine_on(engine, Llm()).run(Plan((Row((3, 1, 2), ()),), (2,)))
        assert str(caught.value) == "vLLM has requests left after 1 steps, but should have none"


class TestReading:
    def test_a_logit_that_vllm_leaves_out_is_no_number(self, engine: Any) -> None:
        logits = np.zeros((1, VOCABULARY), np.float32)
        engine._scatter(Entries([{2: 7.0, 0: 5.0, 3: 1.0}]), 0, logits)
        np.testing.assert_array_equal(logits, [[5.0, np.nan, 7.0, 1.0]])

    @pytest.mark.parametrize("positions", [1, 3])
    def test_too_few_or_too_many_positions(self, engine: Any, positions: int) -> None:
        entries = Entries([{0: 1.0}] * positions)
        with pytest.raises(RuntimeError) as caught:
            engine._scatter(entries, 0, np.zeros((2, VOCABULARY), np.float32))
        assert str(caught.value) == f"positions with logits = {positions}, but should be 2"

    def test_the_first_prompt_token_has_no_logits_before_it(self, engine: Any) -> None:
        engine._scatter(Entries([None]), 1, np.zeros((0, VOCABULARY), np.float32))
