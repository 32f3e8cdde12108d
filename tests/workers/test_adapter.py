"""The base class: what an adapter is when it says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.errors import Unsupported
from conformance.feeds import Feed, Forward
from conformance.workers.adapter import Adapter


class Least(Adapter):
    def prepare(self, checkpoint: Path) -> None:
        return None

    def run(self, model: Any, feed: Feed) -> np.ndarray:
        return np.zeros((feed.batch, feed.width, 7), np.float32)


def test_an_adapter_claims_nothing_that_it_does_not_say() -> None:
    adapter = Least({"threads": 1})
    assert (adapter.releases, adapter.capabilities, adapter.dtypes) == ((), frozenset(), ("float32",))
    assert (adapter.limits, adapter.orders, adapter.versions(), adapter.numerics()) == ({}, (), {}, {})
    assert adapter.options == {"threads": 1}


def test_an_order_that_it_does_not_have() -> None:
    feed = Feed(tokens=((1,),), steps=(Forward(1),))
    with pytest.raises(Unsupported, match=r"^has no evaluation order called relabel:3$"):
        Least({}).run_in_order(None, feed, "relabel:3")


@pytest.mark.parametrize("method", ["prepare", "run"])
def test_both_steps_have_to_be_written(method: str) -> None:
    half = type("Half", (Least,), {method: getattr(Adapter, method)})
    with pytest.raises(TypeError, match=f"abstract method '?{method}'?"):
        half({})
