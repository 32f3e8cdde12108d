"""Sessions in this process, engines for them, and one tiny golden trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from conformance.checkpoints.layout import Layout
from conformance.families.base import Spec, Variant
from conformance.feeds import Feed, Forward
from conformance.goldens.trials import GoldenTrial
from conformance.goldens.verify import Party
from conformance.workers.adapter import Adapter
from conformance.workers.host import Hello
from tests.inline import InlineSession
from tests.toys import Toy

WHOLE = Feed(tokens=((3, 1, 4, 1, 5, 9, 2, 6, 5, 3),), steps=(Forward(10),))


class GoldenSession(InlineSession):
    """A session without processes whose backends answer `hello`, too."""

    def hello(self, name: str) -> Hello:
        adapter = self.backends[name]
        return Hello(
            releases=tuple(adapter.releases),
            capabilities=adapter.capabilities,
            dtypes=tuple(adapter.dtypes),
            limits=adapter.limits,
            versions=adapter.versions(),
            numerics=adapter.numerics(),
        )

    def hello_again(self, name: str) -> Hello | None:
        return self.hello(name)

    def parties(self, names: Iterable[str]) -> list[Party]:
        """The backends of these names, each with code of its own."""
        return [Party(name, self.hello(name), "its own") for name in names]


def session_of(*classes: type[Adapter], reference: type[Adapter] = Toy) -> GoldenSession:
    """A session with one backend for each class, under the class's name, and a reference."""
    oracle = reference({})
    return GoldenSession(oracle, {"reference": oracle, **{each.__name__: each({}) for each in classes}})


def trial_of(spec: Spec, feed: Feed = WHOLE, name: str = "tiny") -> GoldenTrial:
    """A golden trial of a spec under a name of its own."""
    return GoldenTrial(name, Variant(name, spec, Layout()), feed)


class Nudged(Toy):
    """Off by one unit in the last place of FP32 where a logit is largest: rounding."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        logits = super().run(model, feed)
        if feed.dtype != "float32":
            return logits
        largest = np.abs(logits).argmax(-1)[..., None]
        nudged = np.nextafter(np.take_along_axis(logits, largest, -1), np.float32(np.inf))
        np.put_along_axis(logits, largest, nudged, -1)
        return logits


class Brief(Toy):
    """Runs 8 tokens at most, and says so beforehand."""

    limits: ClassVar[Mapping[str, Mapping[str, int]]] = {"length": {"max": 8}}


class Settling(Toy):
    """Knows what it computes with once it has run."""

    kernel = "chosen at the first run"

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        self.kernel = "dot"
        return super().run(model, feed)

    def numerics(self) -> Mapping[str, Any]:
        return {"device": "abacus", "kernel": self.kernel}
