"""Runs: asking backends for logits. Each run is made once a session, however many cases ask for it."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from conformance.backends.registry import Backend, backend_named
from conformance.checkpoints.store import Checkpoint
from conformance.compare.noise import Truth, measure
from conformance.families import family_of
from conformance.faults import leanings
from conformance.feeds import Feed
from conformance.workers.host import Bounds, Hello, Worker, WorkerError

__all__ = ["Run", "Runner", "Session", "Spending", "truth_orders"]

T = TypeVar("T")
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Run:
    """One backend on one checkpoint and one feed.

    Attributes:
        logits: [B, T, V], or None where the run failed.
        kind: what kind of failure (`WorkerError.kind`), or empty.
        message: the failure in a sentence.
        seconds: time in the engine's forward, as the worker measured it.
        prepare_seconds: time to load the checkpoint, 0 where it was loaded already.
    """

    logits: np.ndarray | None
    kind: str = ""
    message: str = ""
    seconds: float = 0.0
    prepare_seconds: float = 0.0


class Runner(Protocol):
    """What judging needs: runs and truths as futures, and a way to wait for them."""

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        """Ask for a run."""

    def truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...] = ()) -> Future[Truth]:
        """Ask for the truth and noise of a feed's meaning, or of the feed itself with some faults."""

    def wait(self, what: str, pending: Future[T]) -> T:
        """The result of a future."""


def truth_orders(family: str, dtype: str, faults: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The evaluation orders whose spread is the noise of a dtype, the reference's own first.

    With faults, their own relabellings and leanings: where an implementation casts is no part of a fault.
    """
    orders = ("relabel:0", *family_of(family).orders[dtype])
    if not faults:
        return orders
    named = f"faults:{','.join(faults)}"
    relabelled = [order for order in orders if order.startswith("relabel:")]
    return tuple(f"{named};{order}" for order in (*relabelled, *leanings(family, faults, dtype)))


@dataclass
class Spending:
    """Where a backend's time went, in seconds of wall time."""

    start: float = 0.0
    prepare: float = 0.0
    forward: float = 0.0
    calls: int = 0
    shared: int = 0


@dataclass
class _Desk:
    """One backend's worker and the thread that talks to it."""

    backend: Backend
    worker: Worker
    thread: ThreadPoolExecutor
    dress: Callable[[Checkpoint], Checkpoint] | None = None
    spending: Spending = field(default_factory=Spending)


class Session:
    """Workers of one test run, and every run they made.

    Args:
        directory: logs of the session; a temporary one if none is given.
        bounds: what one call may cost.
    """

    def __init__(self, directory: Path | None = None, bounds: Bounds = Bounds()) -> None:
        # Logits pass through a directory of this session alone: a file of another one is no answer.
        self._exchange = tempfile.TemporaryDirectory(prefix="conformance-")
        self.directory = directory or Path(self._exchange.name)
        self.bounds = bounds
        self._desks: dict[str, _Desk] = {}
        self._runs: dict[tuple[str, str, str], Future[Run]] = {}
        self._truths: dict[tuple[str, str, tuple[str, ...]], Future[Truth]] = {}
        self._files = itertools.count(1)
        self.reference = "reference"
        self.waits = {"engine start": 0.0, "engine": 0.0, "reference": 0.0}

    def add(self, backend: Backend, dress: Callable[[Checkpoint], Checkpoint] | None = None) -> None:
        """Make a backend known; its worker starts with the first call.

        Args:
            backend: whose worker to add.
            dress: makes of a checkpoint the directory that this backend is given instead.
        """
        if backend.name in self._desks:
            return
        log = self.directory / "logs" / f"{_file_name(backend.name)}.log"
        worker = Worker(backend.name, backend.argv(), log, backend.worker_environment(), self.bounds)
        thread = ThreadPoolExecutor(1, _file_name(backend.name))
        self._desks[backend.name] = _Desk(backend, worker, thread, dress)

    def start(self, names: Iterable[str]) -> dict[str, Future[Hello]]:
        """Start workers side by side."""
        return {name: self._desk(name).thread.submit(self._hello, self._desk(name)) for name in names}

    def hello(self, name: str) -> Hello:
        """What a backend says of itself.

        Raises:
            WorkerError: its worker cannot be started.
        """
        desk = self._desk(name)
        return self.wait("engine start", desk.thread.submit(self._hello, desk))

    def hello_again(self, name: str) -> Hello | None:
        """What a running backend says of itself now: some numerics are settled by the first run."""
        desk = self._desk(name)
        return desk.thread.submit(desk.worker.refresh).result()

    def wait(self, what: str, pending: Future[T]) -> T:
        """The result of a future; the waiting is noted, so that what remains is the harness's own time."""
        started = time.perf_counter()
        try:
            return pending.result()
        finally:
            self.waits[what] += time.perf_counter() - started

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        """Ask for a run; equal questions share one answer."""
        key = (name, checkpoint.identity, feed.key)
        desk = self._desk(name)
        if key in self._runs:
            desk.spending.shared += 1
        else:
            self._runs[key] = desk.thread.submit(self._ask, desk, checkpoint, feed)
        return self._runs[key]

    def truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...] = ()) -> Future[Truth]:
        """The reference in float64 for a feed's meaning, with the noise of the feed's dtype.

        With faults of the family's bank, of the feed itself: they may show in what its meaning leaves out.
        """
        asked = feed if faults else feed.meaning()
        key = (checkpoint.identity, asked.key, faults)
        if key not in self._truths:
            desk = self._desk(self.reference)
            self._truths[key] = desk.thread.submit(self._measure, desk, checkpoint, asked, faults)
        return self._truths[key]

    def spending(self) -> dict[str, Spending]:
        """Where each backend's time went."""
        return {name: desk.spending for name, desk in self._desks.items()}

    def starts(self) -> dict[str, int]:
        """How often each backend's worker was started."""
        return {name: desk.worker.starts for name, desk in self._desks.items()}

    def close(self) -> None:
        """Stop every worker."""
        for desk in self._desks.values():
            desk.thread.shutdown(cancel_futures=True)
            desk.worker.stop()
        self._desks.clear()
        self._exchange.cleanup()

    def _desk(self, name: str) -> _Desk:
        if name not in self._desks:
            self.add(backend_named(name))
        return self._desks[name]

    def _hello(self, desk: _Desk) -> Hello:
        started = time.perf_counter()
        hello = desk.worker.hello()
        desk.spending.start += time.perf_counter() - started
        return hello

    def _ask(self, desk: _Desk, checkpoint: Checkpoint, feed: Feed) -> Run:
        try:
            tensors, run = self._call(desk, checkpoint, feed, ())
        except WorkerError as error:
            return Run(None, error.kind, str(error))
        if "logits" not in tensors:
            return Run(None, "protocol", "wrote a file without a tensor called logits")
        return replace(run, logits=tensors["logits"])

    def _measure(self, desk: _Desk, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...]) -> Truth:
        family = checkpoint.spec.family
        own, *_ = truth_orders(family, "float64", faults)
        exact = self._call(desk, checkpoint, replace(feed, dtype="float64"), (own,))[0][f"logits.{own}"]
        if feed.dtype == "float64":
            return measure(exact, [exact], feed.dtype)
        orders = truth_orders(family, feed.dtype, faults)
        evaluations, _ = self._call(desk, checkpoint, feed, orders)
        return measure(exact, [evaluations[f"logits.{order}"] for order in orders], feed.dtype)

    def _call(
        self, desk: _Desk, checkpoint: Checkpoint, feed: Feed, orders: tuple[str, ...]
    ) -> tuple[Mapping[str, np.ndarray], Run]:
        out = Path(self._exchange.name) / f"{next(self._files)}.safetensors"
        if desk.dress is not None:
            checkpoint = desk.dress(checkpoint)
        params = {"checkpoint": str(checkpoint.path), "feed": feed.to_dict(), "logits": str(out)}
        try:
            answer = desk.worker.run({**params, "orders": list(orders)})
            tensors = _read(out)
        finally:
            out.unlink(missing_ok=True)
        desk.spending.calls += 1
        desk.spending.prepare += answer.get("prepare_seconds", 0.0)
        desk.spending.forward += answer.get("run_seconds", 0.0)
        run = Run(
            None, seconds=answer.get("run_seconds", 0.0), prepare_seconds=answer.get("prepare_seconds", 0.0)
        )
        return tensors, run


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        return load_file(file)
    except (OSError, SafetensorError, TypeError) as error:
        raise WorkerError("protocol", f"wrote no readable logits file: {error}") from None


def _file_name(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
