"""The host's side of the protocol: one long-lived worker process, every call bounded in time and memory."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import psutil

__all__ = ["Bounds", "Hello", "Worker", "WorkerError"]

_POLL_SECONDS = 0.25
# How long a worker may take to exit after `bye`, or once it closed its stdout.
_EXIT_SECONDS = 5.0
# How long a worker may take to say bye.
_BYE_SECONDS = 10.0
# What is kept of a worker that prints without end: each answer is one short line.
_KEPT_LINES, _LONGEST_LINE = 64, 2**20


@dataclass(frozen=True)
class Bounds:
    """What one call may cost before the worker is killed.

    Attributes:
        start_seconds: from the start of the process to its `hello`.
        run_seconds: one `run`, loading the checkpoint included.
        memory_bytes: resident memory of the process and its children.
    """

    start_seconds: float = 180.0
    run_seconds: float = 120.0
    memory_bytes: int = 8 * 2**30


@dataclass(frozen=True)
class Hello:
    """What a worker says of its backend."""

    releases: tuple[str, ...]
    capabilities: frozenset[str]
    dtypes: tuple[str, ...]
    limits: Mapping[str, Mapping[str, Any]]
    orders: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    numerics: Mapping[str, Any] = field(default_factory=dict)


class WorkerError(Exception):
    """A worker did not answer, or answered with an error.

    Attributes:
        kind: `unsupported`, `refused`, `failed` (the engine raised), `died`, `hung`, `memory`, or
            `protocol` (it answered something else).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Worker:
    """A worker process that is started when first needed and again after it was lost.

    Args:
        name: the backend's name, for messages.
        command: argv of the worker.
        log: file that takes the worker's stderr, and what its engine prints.
        environment: the process's whole environment.
        bounds: time and memory.
        directory: working directory of the process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        bounds: Bounds = Bounds(),
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.environment = dict(os.environ if environment is None else environment)
        self.bounds = bounds
        self.directory = directory
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._writer: threading.Thread | None = None
        self._log_start = 0
        self._next_id = 1
        self._lock = threading.Lock()
        self._hello: Hello | None = None

    def hello(self) -> Hello:
        """Start the worker if need be; what it said of itself."""
        with self._lock:
            return self._started()

    def refresh(self) -> Hello | None:
        """What a running worker says of itself now, or None where none is running."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return None
            with suppress(WorkerError):
                return self._greet()
            return None

    def run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One `run` (docs/protocol.md).

        Raises:
            WorkerError: no answer, or an error for an answer; the next call starts a lost worker anew.
        """
        with self._lock:
            self._started()
            result = self._call("run", params, self.bounds.run_seconds)
            self._check(result, "ran")
            return result

    def stop(self) -> None:
        """Say `bye`, and kill what does not go."""
        with self._lock:
            if self._process is None:
                return
            with suppress(WorkerError, subprocess.TimeoutExpired, OSError):
                self._call("bye", {}, _BYE_SECONDS)
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.wait(_EXIT_SECONDS)  # engines clean up behind themselves
            self._kill()

    def _started(self) -> Hello:
        if self._process is not None and self._process.poll() is None and self._hello is not None:
            return self._hello
        self._kill()
        self._start()
        return self._greet()

    def _greet(self) -> Hello:
        result = self._call("hello", {"protocol": 1}, self.bounds.start_seconds)
        if result.get("protocol") != 1:
            self._kill()
            raise WorkerError("protocol", f"speaks protocol {result.get('protocol')!r}, but should speak 1")
        self._check(result, "hello")
        self._hello = Hello(
            releases=tuple(result["releases"]),
            capabilities=frozenset(result["capabilities"]),
            dtypes=tuple(result["dtypes"]),
            limits=result["limits"],
            orders=tuple(result.get("orders", ())),
            versions=result["versions"],
            numerics=result.get("numerics", {}),
        )
        return self._hello

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            self._log_start = log.tell()
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    encoding="utf-8",
                    errors="replace",
                    env=self.environment,
                    cwd=self.directory,
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkerError("died", f"could not be started: {error}") from None
        self.starts += 1
        self._lines = queue.Queue(_KEPT_LINES)
        threading.Thread(target=_read_lines, args=(self._process, self._lines), daemon=True).start()

    def _call(self, method: str, params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process is not None
        number = self._next_id
        request = {"id": number, "method": method, "params": dict(params)}
        self._next_id += 1
        # In a thread: a pipe holds little, and a worker that does not read must not stop us.
        text = json.dumps(request) + "\n"
        self._writer = threading.Thread(target=_write, args=(self._process, text), daemon=True)
        self._writer.start()
        line = self._wait(method, seconds)
        return self._answer(number, line)

    def _wait(self, method: str, seconds: float) -> str:
        assert self._process is not None
        deadline = time.monotonic() + seconds
        exited = False
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                self._kill()
                raise WorkerError("hung", f"gave no answer to {method} within {seconds:g} s and was killed")
            try:
                line = self._lines.get(timeout=min(_POLL_SECONDS, remaining))
            except queue.Empty:
                used = _resident_bytes(self._process.pid)
                if used > self.bounds.memory_bytes:
                    self._kill()
                    raise WorkerError(
                        "memory",
                        f"used {used / 2**30:.1f} GiB, above the bound of "
                        f"{self.bounds.memory_bytes / 2**30:.1f} GiB, and was killed",
                    ) from None
                # A child of a dead worker may hold its stdout open; a last answer may be on its way.
                if exited:
                    raise self._lost(method) from None
                exited = self._process.poll() is not None
                continue
            if line is None:
                raise self._lost(method)
            return line

    def _answer(self, request_id: int, line: str) -> dict[str, Any]:
        try:
            answer = json.loads(line)
            _validator("response").validate(answer)
        except (ValueError, jsonschema.ValidationError):
            self._kill()
            raise WorkerError(
                "protocol",
                f"printed {shlex.quote(line.rstrip()[:80])} to stdout, which belongs to the protocol",
            ) from None
        if answer["id"] != request_id:
            self._kill()
            raise WorkerError("protocol", f"answered request {answer['id']}, but should answer {request_id}")
        if "error" in answer:
            raise WorkerError(answer["error"]["kind"], answer["error"]["message"])
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def _check(self, result: Mapping[str, Any], definition: str) -> None:
        error = next(_validator(definition).iter_errors(result), None)
        if error is not None:
            self._kill()
            place = ".".join(map(str, error.absolute_path)) or "the result"
            raise WorkerError(
                "protocol", f"answered with a wrong {definition} message: {place}: {error.message}"
            )

    def _lost(self, method: str) -> WorkerError:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_EXIT_SECONDS)
        code = self._process.returncode
        self._kill()
        if code is None:
            how = "closed its stdout"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        last = _last_line(self.log, self._log_start)
        return WorkerError("died", f"{how} during {method}" + (f"; last words: {last}" if last else ""))

    def _kill(self) -> None:
        process, self._process, self._hello = self._process, None, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._writer is not None:
            self._writer.join(_POLL_SECONDS)
        if process.stdin is not None and not (self._writer and self._writer.is_alive()):
            with suppress(OSError):
                process.stdin.close()


def _write(process: subprocess.Popen[str], text: str) -> None:
    """Hand over a request; that nobody reads it shows in the answer."""
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        process.stdin.write(text)
        process.stdin.flush()


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    """Put a worker's lines into a queue, then None; what nobody can be waiting for is dropped."""
    assert process.stdout is not None
    with process.stdout as stdout:
        while line := stdout.readline(_LONGEST_LINE):
            with suppress(queue.Full):
                lines.put_nowait(line)
    with suppress(queue.Full):
        lines.put_nowait(None)


def _resident_bytes(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)
    except psutil.Error:  # it has just ended
        return 0


def _last_line(log: Path, start: int) -> str:
    """The last line that a log holds beyond its first `start` bytes."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""
    return ""


@cache
def _validator(definition: str) -> jsonschema.Draft202012Validator:
    text = resources.files("conformance.workers").joinpath("protocol.schema.json").read_text()
    schema = json.loads(text)
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})
