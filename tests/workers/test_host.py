"""The host against real processes that misbehave: one sentence each, and the next call is served."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from conformance.workers import host
from conformance.workers.host import Bounds, Hello, Worker, WorkerError

SCRIPT = Path(__file__).with_name("scripted.py")
RUN = {"checkpoint": "ck", "feed": {}, "logits": "out.safetensors"}
# Starting may take long on a busy machine; where a hang is meant, its bound is short.
PATIENT = Bounds(start_seconds=120, run_seconds=120)
SHORT_RUN = Bounds(start_seconds=120, run_seconds=0.3)

Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Makes workers of scripted.py; afterwards none is left, not even as a zombie."""
    workers: list[Worker] = []

    def make(behaviour: str, bounds: Bounds = PATIENT, *, once: bool = False) -> Worker:
        arguments = [str(tmp_path / "state")] if once else []
        command = [sys.executable, "-S", str(SCRIPT), behaviour, *arguments]
        worker = Worker("scripted", command, tmp_path / "log", bounds=bounds)
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.stop()
    assert [child for child in psutil.Process().children() if str(SCRIPT) in " ".join(_argv(child))] == []
    assert [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE] == []


def _argv(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def error_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(WorkerError) as caught:
        call()
    return caught.value.kind, str(caught.value)


def test_a_worker_that_works(start: Start) -> None:
    worker = start("works")
    assert worker.hello() == Hello(
        releases=("2604",),
        capabilities=frozenset({"decode"}),
        dtypes=("float32",),
        limits={"head_dim": {"one_of": [32]}},
        versions={"engine": "1.2"},
    )
    assert worker.run(RUN) == {"logits": "out.safetensors", "run_seconds": 0.5}
    assert worker.run(RUN) == {"logits": "out.safetensors", "run_seconds": 0.5}
    assert worker.starts == 1


AT_START = {
    "dies at start": ("died", "exited with code 3 during hello; last words: no licence found"),
    "dies at start without a word": ("died", "exited with code 3 during hello"),
    "speaks protocol 2": ("protocol", "speaks protocol 2, but should speak 1"),
    "says no releases": (
        "protocol",
        "answered with a wrong hello message: the result: 'releases' is a required property",
    ),
    "has an unknown capability": (
        "protocol",
        "answered with a wrong hello message: capabilities.0: 'telepathy' is not one of ['batch', 'chunked', "
        "'crop', 'decode', 'left-padding', 'positions', 'ragged', 'reorder', 'reset', 'right-padding', "
        "'segments', 'training']",
    ),
    "has an unknown limit": (
        "protocol",
        "answered with a wrong hello message: limits.head_dim: Additional properties are not allowed "
        "('around' was unexpected)",
    ),
}


@pytest.mark.parametrize("behaviour", AT_START)
def test_a_worker_that_is_wrong_at_start(start: Start, behaviour: str) -> None:
    worker = start(behaviour, once=True)
    assert error_of(worker.hello) == AT_START[behaviour]
    assert worker.hello().releases == ("2604",)
    assert worker.starts == 2


def test_a_flood_at_start_is_not_kept(start: Start) -> None:
    kind, message = error_of(start("floods").hello)
    line = "loading weights " * 8
    assert (kind, message) == ("protocol", f"printed '{line[:80]}' to stdout, which belongs to the protocol")


def test_a_worker_that_hangs_at_start(start: Start) -> None:
    worker = start("hangs at start", Bounds(start_seconds=0.3))
    assert error_of(worker.hello) == ("hung", "gave no answer to hello within 0.3 s and was killed")


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    worker = Worker("ghost", ["./no-such-program"], tmp_path / "log")
    assert error_of(worker.hello) == (
        "died",
        "could not be started: [Errno 2] No such file or directory: './no-such-program'",
    )
    worker.stop()


IN_A_RUN = {
    "dies half-way": (
        "died",
        "was killed by SIGSEGV during run; last words: Segmentation fault in kernel 7",
    ),
    "leaves half-way": ("died", "exited with code 7 during run"),
    "prints": (
        "protocol",
        "printed 'loading shard 1 of 2 …' to stdout, which belongs to the protocol",
    ),
    "prints half an answer": (
        "protocol",
        """printed '{"id": 2, "result":' to stdout, which belongs to the protocol""",
    ),
    "prints without end": (
        "protocol",
        f"printed {'.' * 80} to stdout, which belongs to the protocol",
    ),
    "answers another request": ("protocol", "answered request 7, but should answer 2"),
    "answers a list": ("protocol", "printed '[2]' to stdout, which belongs to the protocol"),
    "names an unknown error": (
        "protocol",
        """printed '{"id": 2, "error": {"kind": "tired", "message": "later"}}' to stdout, """
        "which belongs to the protocol",
    ),
    "names no file": (
        "protocol",
        "answered with a wrong ran message: the result: 'logits' is a required property",
    ),
}


@pytest.mark.parametrize("behaviour", IN_A_RUN)
def test_a_worker_that_is_wrong_in_a_run(start: Start, behaviour: str) -> None:
    worker = start(behaviour, once=True)
    assert error_of(lambda: worker.run(RUN)) == IN_A_RUN[behaviour]
    assert worker.run(RUN) == {"logits": "out.safetensors", "run_seconds": 0.5}
    assert worker.starts == 2


def test_a_child_that_holds_a_dead_workers_stdout(start: Start, tmp_path: Path) -> None:
    worker = start("leaves a child behind", once=True)
    assert error_of(lambda: worker.run(RUN)) == ("died", "exited with code 9 during run")
    state = str(tmp_path / "state")
    mine = [process for process in psutil.process_iter() if state in _argv(process)]
    for process in mine:
        process.wait(20)  # it was killed, but may not have ended yet
    assert worker.run(RUN)["logits"] == "out.safetensors"


ANSWERS = {
    "says it failed": ("failed", "RuntimeError: no kernel for head size 24"),
    "says it cannot": ("unsupported", "no batches above 8"),
    "refuses": ("refused", "cannot crop a ring"),
}


@pytest.mark.parametrize("behaviour", ANSWERS)
def test_an_error_for_an_answer_keeps_the_worker(start: Start, behaviour: str) -> None:
    worker = start(behaviour)
    for _ in range(2):
        assert error_of(lambda: worker.run(RUN)) == ANSWERS[behaviour]
    assert worker.starts == 1


def test_a_worker_that_hangs_in_a_run(start: Start) -> None:
    worker = start("hangs", SHORT_RUN, once=True)
    assert error_of(lambda: worker.run(RUN)) == ("hung", "gave no answer to run within 0.3 s and was killed")
    worker.bounds = PATIENT
    assert worker.run(RUN)["logits"] == "out.safetensors"
    assert worker.starts == 2


def test_a_worker_that_does_not_read_cannot_stop_the_host(start: Start) -> None:
    worker = start("stops reading", SHORT_RUN)
    more_than_a_pipe_holds = {**RUN, "checkpoint": "x" * 2**20}
    assert error_of(lambda: worker.run(more_than_a_pipe_holds)) == (
        "hung",
        "gave no answer to run within 0.3 s and was killed",
    )


def test_a_worker_that_closes_its_stdout(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_EXIT_SECONDS", 0.1)
    worker = start("closes stdout", once=True)
    assert error_of(lambda: worker.run(RUN)) == ("died", "closed its stdout during run")
    assert worker.run(RUN)["logits"] == "out.safetensors"


def test_a_worker_above_its_memory(start: Start) -> None:
    worker = start(
        "eats memory", Bounds(start_seconds=120, run_seconds=120, memory_bytes=200 * 2**20), once=True
    )
    kind, message = error_of(lambda: worker.run(RUN))
    assert kind == "memory"
    # It may be caught while it still eats.
    assert message in [f"used {n} GiB, above the bound of 0.2 GiB, and was killed" for n in ("0.2", "0.3")]
    assert worker.run(RUN)["logits"] == "out.safetensors"


def test_a_worker_that_was_lost_between_calls_is_started_again(start: Start) -> None:
    worker = start("works")
    worker.hello()
    child = next(child for child in psutil.Process().children() if str(SCRIPT) in child.cmdline())
    child.kill()
    # Until then it is a zombie, which the host's own poll has to collect.
    while child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert worker.run(RUN)["logits"] == "out.safetensors"
    assert worker.starts == 2


def test_last_words_are_those_of_this_process(start: Start, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("an earlier session said this\n")
    assert error_of(lambda: start("leaves half-way").run(RUN)) == ("died", "exited with code 7 during run")


def test_stopping_kills_what_does_not_go(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_BYE_SECONDS", 0.1)
    worker = start("ignores bye")
    worker.hello()
    worker.stop()
    worker.stop()


def test_the_environment_is_the_one_given(tmp_path: Path) -> None:
    program = "import os, sys; sys.exit(' '.join(sorted(k for k in os.environ if k != 'LC_CTYPE')))"
    worker = Worker(
        "env", [sys.executable, "-c", program], tmp_path / "log", {"ONLY": "this"}, directory=tmp_path
    )
    assert "ONLY" not in os.environ
    assert error_of(worker.hello) == ("died", "exited with code 1 during hello; last words: ONLY")
