"""A session without processes: adapters in this process, for tests of what is built on it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from conformance.checkpoints.store import Checkpoint
from conformance.compare.noise import Truth, measure
from conformance.errors import Refused, Unsupported
from conformance.feeds import Feed
from conformance.runs import Run, Session, truth_orders
from conformance.workers.adapter import Adapter

T = TypeVar("T")


class InlineSession(Session):
    """A session whose runs are made at once, here.

    Args:
        reference: whose answers are the truth.
        backends: the others, by name.
    """

    def __init__(self, reference: Adapter, backends: dict[str, Adapter]) -> None:
        super().__init__(Path("unused"))
        self.close()  # there is nothing to wait for
        self.oracle = reference
        self.backends = backends
        self._loaded: dict[tuple[int, str], Any] = {}

    def run(self, name: str, checkpoint: Checkpoint, feed: Feed) -> Future[Run]:
        return _done(lambda: self._run(self.backends[name], checkpoint, feed))

    def truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...] = ()) -> Future[Truth]:
        return _done(lambda: self._truth(checkpoint, feed if faults else feed.meaning(), faults))

    def _run(self, adapter: Adapter, checkpoint: Checkpoint, feed: Feed) -> Run:
        try:
            return Run(adapter.run(self._model(adapter, checkpoint), feed))
        except (Refused, Unsupported, RuntimeError) as error:
            kind = {Refused: "refused", Unsupported: "unsupported"}.get(type(error), "failed")  # type: ignore[arg-type]
            return Run(None, kind, str(error))

    def _truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...]) -> Truth:
        model, family = self._model(self.oracle, checkpoint), checkpoint.spec.family
        own, *_ = truth_orders(family, "float64", faults)
        exact = self.oracle.run_in_order(model, replace(feed, dtype="float64"), own)
        orders = truth_orders(family, feed.dtype, faults)
        return measure(exact, [self.oracle.run_in_order(model, feed, o) for o in orders], feed.dtype)

    def _model(self, adapter: Adapter, checkpoint: Checkpoint) -> Any:
        key = (id(adapter), checkpoint.identity)
        if key not in self._loaded:
            self._loaded[key] = adapter.prepare(checkpoint.path)
        return self._loaded[key]


def _done(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # handed to whoever asks, as an executor does
        future.set_exception(error)
    return future
