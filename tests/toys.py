"""A toy model that needs numpy alone, right and broken in every way that a worker can be.

The toy is no language model, but it has what feeds are about: each logit depends on the last W tokens that
are visible to it, and on nothing else. `Toy` can stand in for the reference, so that tests of the harness
start workers in a fraction of a second. Backends by class: ``--backend tests.toys:Short``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from conformance.checkpoints.random import round_to_bfloat16
from conformance.errors import Refused, Unsupported
from conformance.feeds import CAPABILITIES, DTYPES, Feed, Forward
from conformance.workers.adapter import Adapter


class Toy(Adapter):
    """Does everything, correctly."""

    releases = ("2604", "4k")
    capabilities = frozenset(CAPABILITIES)
    dtypes = DTYPES
    orders = ("relabel:N", "casts:NAME,NAME")

    def prepare(self, checkpoint: Path) -> tuple[int, int]:
        config = json.loads((checkpoint / "config.json").read_text())
        return config["vocab_size"], config["window_size"]

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        vocabulary, window = model
        scores = np.zeros((feed.batch, feed.width))
        for phase in feed.phases():
            for row, context in enumerate(phase.context):
                seen = [(r, c) for r, c in context if c in feed.real[r]]
                for column in range(phase.start, phase.start + phase.columns):
                    if column in feed.real[row]:
                        seen.append((row, column))
                    own = [cell for cell in seen if _segment(feed, cell) == _segment(feed, (row, column))]
                    last = own[-window:][::-1]
                    scores[row, column] = sum(feed.tokens[r][c] * 0.7**age for age, (r, c) in enumerate(last))
        logits = 8 * np.sin((np.arange(vocabulary) + 1) * (scores[..., None] + 1) / vocabulary)
        if feed.dtype == "float64":
            return logits
        return round_to_bfloat16(logits) if feed.dtype == "bfloat16" else logits.astype(np.float32)

    def run_in_order(self, model: tuple[int, int], feed: Feed, order: str) -> np.ndarray:
        return self.run(model, feed)

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__}

    def numerics(self) -> Mapping[str, Any]:
        return {"threads": 1}


def _segment(feed: Feed, cell: tuple[int, int]) -> int:
    row, column = cell
    return 0 if feed.segments is None else feed.segments[row][column]


class Short(Toy):
    """Answers for all but the last token."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        return super().run(model, feed)[:, :-1]


class Clipped(Toy):
    """Leaves out the last token of the vocabulary."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        return super().run(model, feed)[..., :-1]


class Squeezed(Toy):
    """Leaves out the axis of rows."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        return super().run(model, feed)[0]


class Half(Toy):
    """Answers in float16."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        return super().run(model, feed).astype(np.float16)


class Nothing(Toy):
    """Forgets its return statement."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        super().run(model, feed)
        return None  # type: ignore[return-value]


class NotFinite(Toy):
    """One NaN, in a token that nobody would sample."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        logits = super().run(model, feed)
        logits[0, 2, 7] = np.nan
        return logits


class LastToken(Toy):
    """Wrong at the last position of long sequences, and there alone."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        logits = super().run(model, feed)
        if feed.width > 8:
            logits[:, -1] = logits[:, -1, ::-1]
        return logits


class Lifted(Toy):
    """Adds one half to every logit: the same distribution, other values."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        return super().run(model, feed) + np.float32(0.5)


class Forgetful(Toy):
    """Starts anew at every forward step: no cache."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        chunks, start = [], 0
        for columns in feed.chunks:
            tokens = tuple(row[start : start + columns] for row in feed.tokens)
            chunks.append(super().run(model, replace(feed, tokens=tokens, steps=(Forward(columns),))))
            start += columns
        return np.concatenate(chunks, axis=1)


class Raises(Toy):
    """The engine raises."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        raise RuntimeError("no kernel for head size 24\nRun with DEBUG=1 for more.")


class CannotLoad(Toy):
    """The engine does not know the model."""

    def prepare(self, checkpoint: Path) -> tuple[int, int]:
        raise KeyError("plamo3")


class Unable(Toy):
    """Finds out at run time that it cannot do what it declared."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        raise Unsupported("no sequences above 8 tokens")


class Refuses(Toy):
    """Declines every cache operation with an error of its own."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        if any(not isinstance(step, Forward) for step in feed.steps):
            raise Refused("cannot crop a ring")
        return super().run(model, feed)


class Loud(Toy):
    """Prints to stdout from Python, from C, and from a child process, and is right all the same."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        print("said by Python")
        sys.stdout.flush()
        os.write(1, b"said by C\n")
        subprocess.run([sys.executable, "-S", "-c", "print('said by a child')"], check=True)
        return super().run(model, feed)


class Silent(Toy):
    """Never answers."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        while True:
            time.sleep(60)


class Mortal(Toy):
    """Dies in its second run."""

    runs = 0

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        self.runs += 1
        if self.runs == 2:
            sys.stderr.write("out of registers\n")
            sys.stderr.flush()
            os._exit(11)
        return super().run(model, feed)


class Stillborn(Toy):
    """Dies before it says hello."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        sys.exit("libmagic.so: cannot open shared object file")


class Whole(Toy):
    """Runs whole sequences of one release, on models with heads of 24, in float32."""

    releases = ("2604",)
    capabilities = frozenset()
    dtypes = ("float32",)
    limits = {"head_dim": {"one_of": [24]}}  # noqa: RUF012  (as a third party would write it)


class Diary(Toy):
    """Writes down which checkpoints it loads and frees."""

    entries: ClassVar[list[tuple[str, str]]] = []

    def prepare(self, checkpoint: Path) -> Any:
        self.entries.append(("prepare", checkpoint.name))
        return checkpoint.name, super().prepare(checkpoint)

    def run(self, model: Any, feed: Feed) -> np.ndarray:
        return super().run(model[1], feed)

    def release(self, model: Any) -> None:
        self.entries.append(("release", model[0]))


class Curious(Toy):
    """Says in its numerics what its process can see."""

    def numerics(self) -> Mapping[str, Any]:
        return {"path": list(sys.path), "options": dict(self.options), "directory": os.getcwd()}


class NoAdapter:
    """Has the methods, but is no Adapter."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options


class SlowToStart(Toy):
    """Has its releases only after it was started."""

    releases = ()

    def start(self) -> None:
        self.releases = (*self.releases, "4k")  # type: ignore[misc]
