"""Faults: named ways in which an implementation can deviate from a release.

A fault is a small change to the knobs of a family's deviating model, which with no change at all
computes what the oracle computes. Nothing here knows a family: a family's package keeps its bank and
its deviating model in a module called `faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import Any, Protocol, cast

from conformance.errors import BadInput, did_you_mean
from conformance.families import FAMILIES, family_of
from conformance.families.base import Spec
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset

__all__ = [
    "BATCH",
    "BFLOAT16",
    "CACHED",
    "CHUNKED",
    "CROP",
    "CROP_INSIDE",
    "CROP_PAST_END",
    "CROP_TO_ZERO",
    "DECODE",
    "FLOAT32",
    "LEANINGS",
    "MASKED",
    "NOTHING",
    "NOT_FINITE",
    "PADDED",
    "PADDING_AHEAD",
    "POSITIONS",
    "POSITION_JUMPS",
    "REORDER",
    "RESET",
    "ROUNDING",
    "SEGMENTS",
    "SEVERAL",
    "SHAPE",
    "TRAINING",
    "UNLIKE_ROWS",
    "VALUES",
    "Condition",
    "Fault",
    "FaultModule",
    "by_kind",
    "clash",
    "combine",
    "crops",
    "either",
    "faults_of",
    "find",
    "leanings",
]

# What a fault does to a run where its conditions hold.
VALUES = "values"  # logits leave the noise
ROUNDING = "rounding"  # another correct evaluation: logits stay within the noise
NOT_FINITE = "not finite"
SHAPE = "shape"
NOTHING = "nothing"  # the same function for every input

# Evaluation orders in which numbers on a border of a rounding fall to one side.
LEANINGS = ("lean:up", "lean:down")


@dataclass(frozen=True)
class Condition:
    """Something that a model or a feed must have for a fault to show.

    Attributes:
        name: a word or two, for tables.
        words: the same as a noun phrase.
        holds: (spec, feed) → whether it has it.
    """

    name: str
    words: str
    holds: Callable[[Spec, Feed], bool] = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One named deviation.

    Attributes:
        id: stable, kebab-case; triage, deviation files and reports refer to it.
        what: one sentence: what the implementation does.
        part: the part of the model that it is in.
        kind: the kind of mistake that it is an instance of.
        section: where the right behaviour is described.
        changes: knob → value.
        where: all of these must hold for it to show; none means any run of any model.
        reveals: what shows then: `VALUES`, `ROUNDING`, `NOT_FINITE`, `SHAPE` or `NOTHING`.
        why: the reason, unless it reveals `VALUES`.
        twins: faults that cannot be told from this one by the runs that the harness makes.
        rounds: it rounds what the model computes. Noise decides to which side a number on the border
            between two rounded ones falls, and one that falls otherwise is further than noise.
    """

    id: str
    what: str
    part: str
    kind: str
    section: str
    changes: Mapping[str, Any] = field(hash=False)
    where: tuple[Condition, ...] = ()
    reveals: str = VALUES
    why: str = ""
    twins: tuple[str, ...] = ()
    rounds: bool = False

    def applies(self, spec: Spec, feed: Feed) -> bool:
        """Can it show here? False is certain: the run is then the same with and without it."""
        return self.reveals != NOTHING and all(condition.holds(spec, feed) for condition in self.where)

    @property
    def shows(self) -> str:
        """Where it shows, in a few words: ``decode, 2604``; ``any run``."""
        return ", ".join(condition.name for condition in self.where) or "any run"


class FaultModule(Protocol):
    """What a family's `faults` module offers."""

    FAULTS: tuple[Fault, ...]

    def run(self, spec: Spec, weights: Mapping[str, Any], feed: Feed, changes: Mapping[str, Any]) -> Any:
        """Logits [B, T, V], a tensor in the dtype of `weights`, with some knobs changed."""

    def arrange(
        self, spec: Spec, weights: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The weights as such an implementation takes them; `run` expects them arranged."""


def faults_of(family: str) -> FaultModule:
    """The faults of a family, without importing what runs them.

    Raises:
        BadInput: there is no such family.
    """
    return cast(FaultModule, import_module(f"{FAMILIES[family_of(family).name]}.faults"))


def leanings(family: str, faults: Iterable[str], dtype: str) -> tuple[str, ...]:
    """Evaluation orders that a faulty model's noise is measured on besides relabellings.

    What a fault rounds is known up to FP32 noise, so in FP32 runs the borders are tried from both sides.
    """
    bank = faults_of(family).FAULTS
    if dtype != "float32" or not any(find(bank, name).rounds for name in faults):
        return ()
    return LEANINGS


def find(bank: Sequence[Fault], fault_id: str) -> Fault:
    """The fault called `fault_id`.

    Raises:
        BadInput: there is none; the nearest one is offered.
    """
    for fault in bank:
        if fault.id == fault_id:
            return fault
    hint = did_you_mean(fault_id, (fault.id for fault in bank))
    raise BadInput(f"fault = {fault_id!r}, but should be one of the {len(bank)} in the bank{hint}")


def clash(one: Fault, other: Fault) -> tuple[str, ...]:
    """The knobs that two faults set to different values: such a pair cannot be in one model."""
    shared = set(one.changes) & set(other.changes)
    return tuple(sorted(knob for knob in shared if one.changes[knob] != other.changes[knob]))


def combine(faults: Iterable[Fault]) -> dict[str, Any]:
    """All changes of some faults; their order does not matter.

    Raises:
        BadInput: two of them set one knob to different values.
    """
    chosen: list[Fault] = []
    changes: dict[str, Any] = {}
    for fault in faults:
        for earlier in chosen:
            knobs = clash(earlier, fault)
            if knobs:
                raise BadInput(f"faults = {earlier.id} and {fault.id}, but both set {', '.join(knobs)}")
        chosen.append(fault)
        changes.update(fault.changes)
    return changes


def by_kind(bank: Iterable[Fault]) -> dict[str, tuple[Fault, ...]]:
    """Faults grouped by the kind of mistake, in bank order."""
    groups: dict[str, tuple[Fault, ...]] = {}
    for fault in bank:
        groups[fault.kind] = (*groups.get(fault.kind, ()), fault)
    return groups


def crops(feed: Feed) -> list[tuple[int, int]]:
    """(asked length, tokens held) of every cut of a cache that holds something and is fed more later."""
    found: list[tuple[int, int]] = []
    held = 0
    for place, step in enumerate(feed.steps):
        match step:
            case Forward(columns):
                held += columns
            case Reset():
                held = 0
            case Crop(length):
                if held and any(isinstance(later, Forward) for later in feed.steps[place:]):
                    found.append((length, held))
                held = min(held, length)
    return found


def _on_top(feed: Feed, several: bool | None) -> bool:
    """Is there a forward step on top of a non-empty cache: of one column, of several, or of any?"""
    return any(phase.context[0] and several in (None, phase.columns > 1) for phase in feed.phases())


def _operated(feed: Feed, kind: type[Reorder] | type[Reset]) -> bool:
    """Is there such a cache operation, with a forward step before and after it?"""
    steps = feed.steps
    return any(
        isinstance(step, kind)
        and any(isinstance(before, Forward) for before in steps[:place])
        and any(isinstance(after, Forward) for after in steps[place:])
        for place, step in enumerate(steps)
    )


def _padded(feed: Feed) -> bool:
    return feed.padding is not None and any(len(columns) < feed.width for columns in feed.real)


def _padding_ahead(feed: Feed) -> bool:
    """Does a real token come after padding of its row, in the row or in what is attended?"""
    if not _padded(feed):
        return False
    if feed.padding == "left":
        return True
    for phase in feed.phases():
        new = range(phase.start, phase.start + phase.columns)
        for row, context in enumerate(phase.context):
            cells = [*context, *((row, column) for column in new)]
            real = [column in feed.real[source] for source, column in cells]
            if False in real and True in real[real.index(False) :]:
                return True
    return False


def _unlike_rows(feed: Feed) -> bool:
    """Would the first row's positions move another row's tokens against each other?"""
    if feed.batch == 1:
        return False
    if feed.positions is not None:
        return any(row != feed.positions[0] for row in feed.positions)
    operated = any(not isinstance(step, Forward) for step in feed.steps)
    starts = [columns.start for columns in feed.real]
    return max(starts) > 0 if operated else starts[0] > min(starts)


def _jumps(feed: Feed) -> bool:
    """Does a given position not follow the one before it, in a step on an empty cache?"""
    if feed.positions is None or feed.segments is not None:
        return False
    starts = [phase for phase in feed.phases() if not any(phase.context)]
    return any(
        after - before != 1
        for phase in starts
        for row in feed.positions
        for before, after in pairwise(row[phase.start : phase.start + phase.columns])
    )


def _bfloat16(feed: Feed) -> bool:
    return feed.dtype == "bfloat16"


def either(*conditions: Condition) -> Condition:
    """At least one of several conditions."""
    return Condition(
        " or ".join(condition.name for condition in conditions),
        " or ".join(condition.words for condition in conditions),
        lambda spec, feed: any(condition.holds(spec, feed) for condition in conditions),
    )


def _condition(name: str, words: str, holds: Callable[[Feed], bool]) -> Condition:
    """A condition on the feed alone."""
    return Condition(name, words, lambda _, feed: holds(feed))


DECODE = _condition("decode", "one token at a time on top of a cache", lambda feed: _on_top(feed, False))
CHUNKED = _condition(
    "chunked", "several tokens at a time on top of a cache", lambda feed: _on_top(feed, True)
)
CACHED = _condition("cached", "anything on top of a cache", lambda feed: _on_top(feed, None))
SEVERAL = _condition("several at a time", "a step of several tokens", lambda feed: max(feed.chunks) > 1)
CROP = _condition(
    "crop", "a cache cut back, then more tokens", lambda feed: any(n < held for n, held in crops(feed))
)
CROP_INSIDE = _condition(
    "crop", "a cache cut back, but not to 0", lambda feed: any(0 < n < held for n, held in crops(feed))
)
CROP_TO_ZERO = _condition(
    "crop to 0", "a cache cut back to 0", lambda feed: any(n == 0 for n, _ in crops(feed))
)
CROP_PAST_END = _condition(
    "crop past the end",
    "a cut beyond what a cache holds",
    lambda feed: any(n > held for n, held in crops(feed)),
)
RESET = _condition("reset", "an emptied cache, then more tokens", lambda feed: _operated(feed, Reset))
REORDER = _condition("reorder", "cache rows moved, then more tokens", lambda feed: _operated(feed, Reorder))
TRAINING = _condition("training", "training mode", lambda feed: feed.mode != "evaluation")
BATCH = _condition("batch", "several rows", lambda feed: feed.batch > 1)
PADDED = _condition("padded", "padded rows", _padded)
PADDING_AHEAD = _condition("padding ahead", "padding before a row's tokens", _padding_ahead)
POSITIONS = _condition("positions", "given position ids", lambda feed: feed.positions is not None)
POSITION_JUMPS = _condition(
    "positions that jump", "given position ids that jump in a step on an empty cache", _jumps
)
SEGMENTS = _condition("segments", "packed rows", lambda feed: feed.segments is not None)
MASKED = either(PADDED, SEGMENTS)
UNLIKE_ROWS = _condition("rows at unlike positions", "rows at unlike positions", _unlike_rows)
BFLOAT16 = _condition("bfloat16", "a BF16 run", _bfloat16)
FLOAT32 = _condition("float32", "a run in FP32 or wider", lambda feed: not _bfloat16(feed))
