"""What faults that round do to noise: how far numbers are from where they would be rounded, and what shows.

``python -m tests.families.stepwise.borders`` prints the tables; with ``--beside activation-in-float16`` the
last one is about that fault. Engines are played by relabellings that the
noise is not measured on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.compare.verdict import ROUNDING
from conformance.errors import Refused
from conformance.families import FAMILIES, family_of
from conformance.families.stepwise import numerics
from conformance.faults import VALUES, Fault, clash, faults_of, find
from conformance.feeds import Feed
from conformance.runs import truth_orders
from conformance.trials import models
from tests.families.stepwise.trials import feeds_of

# Relabellings that play engines.
ENGINES = range(5, 17)
FEEDS = ("whole", "decode", "left padding", "long")


@dataclass(frozen=True)
class Subject:
    """A drawn model, ready to run, and feeds on it."""

    checkpoint: Checkpoint
    adapter: ReferenceAdapter
    model: Any

    @property
    def feeds(self) -> dict[str, Feed]:
        """Those of `FEEDS`, in FP32."""
        return {name: feed for name, feed in feeds_of(self.checkpoint.spec) if name in FEEDS}

    def run(self, feed: Feed, order: str, dtype: str = "float32") -> np.ndarray:
        """Logits [B, T, V]; what declines a feed gives infinite ones."""
        try:
            return self.adapter.run_in_order(self.model, replace(feed, dtype=dtype), order)
        except Refused:
            return np.full((feed.batch, feed.width, self.checkpoint.spec.vocab_size), np.inf)

    def off(self, feed: Feed, order: str, exact: np.ndarray) -> np.ndarray:
        """The distance [B, T] of a run from `exact`; infinite where it is not finite or of another shape."""
        got = self.run(feed, order)
        if got.shape != exact.shape:
            return np.full(exact.shape[:2], np.inf)
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(np.abs(got - exact).max(axis=-1), nan=np.inf)


def subjects(family: str, count: int, directory: Path) -> Iterator[Subject]:
    """Models of the family's first release."""
    adapter = ReferenceAdapter({})
    for spec, seed in models(family, family_of(family).releases[0].name, {}, count):
        checkpoint = write_checkpoint(directory, spec, seed)
        yield Subject(checkpoint, adapter, adapter.prepare(checkpoint.path))


def multiplied(subject: Subject, dtype: str) -> list[np.ndarray]:
    """Everything that is multiplied with weights in one run without faults: arrays [..., N]."""
    seen: list[np.ndarray] = []
    own = numerics.linear

    def linear(x: Tensor, w: Tensor, knobs: Any) -> Tensor:
        seen.append(x.double().numpy())
        return own(x, w, knobs)

    users = [m for name, m in sys.modules.items() if name.startswith("conformance.families.")]
    patches = [mock.patch.object(m, "linear", linear) for m in users if getattr(m, "linear", None) is own]
    for patch in patches:
        patch.start()
    subject.run(subject.feeds["left padding"], "faults:", dtype)
    for patch in patches:
        patch.stop()
    return seen


def errors(subject: Subject) -> np.ndarray:
    """How far what is multiplied is in FP32 from what it is in FP64, in parts of its row's rms."""
    subject.run(subject.feeds["whole"], "faults:")  # imports what is to be patched
    pairs = zip(multiplied(subject, "float64"), multiplied(subject, "float32"), strict=True)
    parts = [np.abs(a - b) / np.sqrt(np.square(a).mean(-1, keepdims=True)) for a, b in pairs]
    return np.concatenate([part.ravel() for part in parts])


def noises(subject: Subject, feed: Feed, fault: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Float64 logits with a fault, and the noise [B, T] without and with leanings."""
    family = subject.checkpoint.spec.family
    exact, plain = subject.run(feed, f"faults:{fault}", "float64"), subject.run(feed, "relabel:0", "float64")
    least = np.max([subject.off(feed, order, plain) for order in truth_orders(family, "float32")], axis=0)
    orders = truth_orders(family, "float32", (fault,))
    off = {order: subject.off(feed, order, exact) for order in orders}
    relabelled = [values for order, values in off.items() if "relabel" in order]
    return exact, np.maximum(least, np.max(relabelled, axis=0)), np.maximum(least, np.max([*off.values()], 0))


def print_errors(count: int, directory: Path) -> None:
    """Quantiles, as Markdown."""
    print("| family | median | 99 % | largest |\n|---|---|---|---|")
    for family in FAMILIES:
        found = np.concatenate([errors(subject) for subject in subjects(family, count, directory)])
        least, most, worst = (f"2^{np.log2(np.quantile(found, share)):.1f}" for share in (0.5, 0.99, 1))
        print(f"| {family} | {least} | {most} | {worst} |")


def print_engines(count: int, directory: Path) -> None:
    """How far relabellings that the noise does not know are from a prediction, as Markdown."""
    print("| family | fault | runs | without leanings | beyond rounding | with leanings | beyond rounding |")
    print("|---|---|---|---|---|---|---|")
    for family in FAMILIES:
        for fault in (fault for fault in faults_of(family).FAULTS if fault.rounds):
            worst: tuple[list[float], list[float]] = ([], [])
            for subject in subjects(family, count, directory):
                for feed in subject.feeds.values():
                    exact, *both = noises(subject, feed, fault.id)
                    for number in ENGINES:
                        off = subject.off(feed, f"faults:{fault.id};relabel:{number}", exact)
                        for ratios, noise in zip(worst, both, strict=True):
                            ratios.append(float((off / noise).max()))
            cells = [f"{max(r):.3g} | {sum(one > ROUNDING for one in r)}" for r in worst]
            print(f"| {family} | `{fault.id}` | {len(worst[0])} | {' | '.join(cells)} |", flush=True)


def print_second_faults(family: str, name: str, directory: Path) -> None:
    """Which faults beside one that rounds do not show against the prediction of that one."""
    bank = faults_of(family).FAULTS
    first = find(bank, name)
    hidden: list[str] = []
    tried = 0
    (subject,) = subjects(family, 1, directory)
    feeds = dict(feeds_of(subject.checkpoint.spec))
    known = {key: noises(subject, feed, name) for key, feed in feeds.items() if feed.dtype == "float32"}
    for fault in bank:
        shown = partial(_shows, subject, first, fault)
        where = [key for key in known if fault.applies(subject.checkpoint.spec, feeds[key])]
        if fault.reveals != VALUES or clash(first, fault) or not where or fault == first:
            continue
        tried += 1
        if not any(shown(feeds[key], *known[key]) for key in where):
            hidden.append(fault.id)
    rest = f", not {', '.join(hidden)}" if hidden else ""
    print(f"{family}, beside {name}: {tried - len(hidden)} of {tried} other faults show{rest}")


def _shows(
    subject: Subject,
    first: Fault,
    second: Fault,
    feed: Feed,
    exact: np.ndarray,
    _: np.ndarray,
    noise: np.ndarray,
) -> bool:
    off = subject.off(feed, f"faults:{first.id},{second.id}", exact)
    return bool((off > ROUNDING * noise).any())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="what faults that round do to noise")
    parser.add_argument("--models", type=int, default=4, help="models of each family (default 4)")
    parser.add_argument("--beside", default="cache-float16", help="the fault to put others beside")
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        print_errors(options.models, Path(directory))
        print()
        print_engines(options.models, Path(directory))
        print()
        for family in FAMILIES:
            if any(fault.id == options.beside for fault in faults_of(family).FAULTS):
                print_second_faults(family, options.beside, Path(directory))


if __name__ == "__main__":
    main()
