"""Probes: models and feeds chosen to tell faults apart, the plainest first."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import WindowSpan
from conformance.families import family_of
from conformance.families.base import LOCAL, Spec, Variant
from conformance.faults import NOTHING, ROUNDING, Fault
from conformance.feeds import Feed, Forward, Reorder
from conformance.limits import violation
from conformance.operations import cache_operations
from conformance.trials import models

__all__ = [
    "Probe",
    "Setting",
    "further_probes",
    "kind_probes",
    "ladder",
    "on_other_models",
    "span_claims",
]

PREFILL, DECODE, CHUNKED = "prefill", "decode", "chunked"
# Drawn models: the first one carries most probes, the others tell apart what is equal on it.
_DRAWN = 4
_LONG = 66  # beyond the largest step at which a kernel is known to switch
_BETWEEN_THRESHOLDS = (12, 24, 40)  # the steps are 8, 16, 32 and 64


@dataclass(frozen=True)
class Setting:
    """What may be asked of a backend.

    Attributes:
        family: whose models.
        release: whose meaning.
        limits: as the backend declares them.
        capabilities: likewise.
        dtypes: likewise.
        checkpoints: where generated checkpoints are kept.
        first: how many drawn models to leave out before the first one.
    """

    family: str
    release: str
    limits: Mapping[str, Any]
    capabilities: frozenset[str]
    dtypes: frozenset[str]
    checkpoints: Path
    first: int = 0


@dataclass(frozen=True)
class Probe:
    """One feed on one model.

    Attributes:
        name: unique within a diagnosis.
        phase: what kind of run it is: prefill, decode, chunked, training, …
        checkpoint: the model.
        feed: what it is fed.
    """

    name: str
    phase: str
    checkpoint: Checkpoint
    feed: Feed

    @property
    def spec(self) -> Spec:
        """The model's configuration."""
        return self.checkpoint.spec


def ladder(setting: Setting, bank: Sequence[Fault]) -> list[Probe]:
    """The probes of a first pass: what fewer parts of a model can spoil comes first.

    One token, a few, more than the window, then over a cache, several rows, everything that the backend
    can do besides; then other models, as many as it takes for every fault of the bank to have a probe on
    which it can show; then BF16.
    """
    main, *others = _models(setting)
    rungs = [*_plain(main), *_batched(main)]
    probes = [_probe(name, phase, main, feed) for name, phase, feed in rungs]
    probes = [probe for probe in probes if probe.feed.requires <= setting.capabilities]
    nameable = [fault for fault in bank if fault.reveals not in (NOTHING, ROUNDING)]
    hidden = [fault for fault in nameable if not _shown(fault, probes)]
    for number, checkpoint in enumerate(others, 2):
        extra = _on_another(setting, number, checkpoint)
        if any(_shown(fault, extra) for fault in hidden):
            probes += extra
            hidden = [fault for fault in hidden if not _shown(fault, extra)]
    if "bfloat16" in setting.dtypes:
        wanted = ("several rows", "one row at a time from 2", "beyond the window")
        probes += [_typed(probe, "bfloat16") for probe in probes if probe.name in wanted][-2:]
    return probes


def further_probes(setting: Setting) -> list[Probe]:
    """Probes for hypotheses that the ladder cannot tell apart: other widths, then other models."""
    main, *others = _models(setting)
    found = [
        _probe(f"{width} columns", PREFILL, main, _feed(main, 1, width, 9)) for width in _BETWEEN_THRESHOLDS
    ]
    found = [probe for probe in found if probe.feed.requires <= setting.capabilities]
    for number, checkpoint in enumerate(others, 2):
        found += _on_another(setting, number, checkpoint)
    return found


def on_other_models(setting: Setting, names: Container[str]) -> Iterator[list[Probe]]:
    """Probes of the first model, for one other model after another: an engine may lack them on some only."""
    _, *others = _models(setting)
    for number, checkpoint in enumerate(others[: _DRAWN - 1], 2):
        rungs = [*_plain(checkpoint), *_batched(checkpoint)]
        yield [
            _probe(f"{name}, model {number}", phase, checkpoint, feed)
            for name, phase, feed in rungs
            if name in names and feed.requires <= setting.capabilities
        ]


def kind_probes(setting: Setting) -> list[Probe]:
    """A model of one local layer and one of one global layer: which kind of layer differs?"""
    found: list[Probe] = []
    for kind in ("local", "global"):
        checkpoint = _one_layer(setting, kind)
        feed = _feed(checkpoint, 1, 3 * checkpoint.spec.window_size + 3, 11)
        found.append(_probe(f"one {kind} layer", PREFILL, checkpoint, feed))
        if "decode" in setting.capabilities:
            found.append(_probe(f"one {kind} layer, decode", DECODE, checkpoint, feed.token_by_token(2)))
    return found


def span_claims(setting: Setting) -> list[tuple[Checkpoint, WindowSpan]]:
    """Claims that measure how many tokens a local layer's query really sees, in prefill and in decode."""
    checkpoint = _one_layer(setting, LOCAL)
    span = checkpoint.spec.window_span
    feed = _feed(checkpoint, 1, span + 4, 12)
    fed = {PREFILL: feed}
    if "decode" in setting.capabilities:
        fed[DECODE] = feed.token_by_token(2)
    return [
        (checkpoint, WindowSpan(phase, one, tuple(_changed(one, checkpoint.spec)), span))
        for phase, one in fed.items()
    ]


def _changed(feed: Feed, spec: Spec) -> Iterator[Feed]:
    """The feed with one token changed: the last one, the one before it, …"""
    row = feed.tokens[0]
    for place in reversed(range(len(row))):
        other = (row[place] + 1) % spec.vocab_size
        yield replace(feed, tokens=((*row[:place], other, *row[place + 1 :]),))


def _models(setting: Setting) -> list[Checkpoint]:
    """Drawn models, then the first one written down in other ways."""
    every = models(setting.family, setting.release, setting.limits, setting.first + _DRAWN)
    drawn = every[setting.first :]
    (spec, seed), *_ = drawn
    variants: Iterable[Variant] = family_of(setting.family).layouts(spec)
    specs = [*drawn, *((variant.spec, seed) for variant in variants)]
    fitting = [one for one in dict.fromkeys(specs) if violation(one[0].to_dict(), setting.limits) is None]
    return [write_checkpoint(setting.checkpoints, spec, seed) for spec, seed in fitting]


def _one_layer(setting: Setting, kind: str) -> Checkpoint:
    ((spec, seed), *_) = models(setting.family, setting.release, setting.limits, 1, layers=kind)
    return write_checkpoint(setting.checkpoints, spec, seed)


def _plain(of: Checkpoint) -> list[tuple[str, str, Feed]]:
    """One row, without anything that a backend may lack but a cache."""
    window = of.spec.window_size
    long = _feed(of, 1, _LONG, 7)
    row = _feed(of, 1, 3 * window + 4, 8)
    decoded = row.first(2 * window + 4)  # enough for a ring to wrap twice
    return [
        ("the first token", PREFILL, row.first(1)),
        ("within the window", PREFILL, row.first(window)),
        ("beyond the window", PREFILL, row),
        ("one token on a cache", DECODE, row.first(3).split([2])),
        ("one at a time from 2", DECODE, decoded.token_by_token(2)),
        ("one at a time beyond the window", DECODE, decoded.token_by_token(window + 2)),
        ("two tokens on a cache", CHUNKED, row.first(3).split([1])),
        ("chunks", CHUNKED, row.split([3, window, window + 1])),
        ("a long row", PREFILL, long),
    ]


def _batched(of: Checkpoint) -> list[tuple[str, str, Feed]]:
    """Several rows, and everything else that a feed can ask for."""
    window = of.spec.window_size
    held = 2 * window + 1
    width = held + 6
    rows = _feed(of, 3, width, 6)
    left = replace(rows, lengths=(width, width - 3, window + 2), padding="left")
    first = [window + 2 + row for row in range(3)]
    packed = replace(rows, segments=tuple((0,) * n + (1,) * (width - n) for n in first))
    # Gaps of another size in each row, for a shift that all positions share changes nothing.
    gaps = tuple(tuple((3 + row) * place for place in range(width)) for row in range(3))
    far = (tuple(301 + 7 * place for place in range(width)),) * 3
    rest = (Forward(2), *(Forward(1),) * (width - held - 2))
    return [
        ("several rows", PREFILL, rows),
        ("several rows, one at a time", DECODE, rows.token_by_token(window)),
        ("left padding", "padded", left),
        ("left padding, one at a time", "padded", left.token_by_token(held)),
        ("left padding, chunks", "padded", left.split([window + 1, 3])),
        ("right padding", "padded", replace(left, padding="right")),
        ("packed", "packed", packed),
        ("packed, chunks", "packed", packed.split([5, 4, 3])),
        ("positions with gaps", "positions", replace(rows, positions=gaps)),
        ("positions far on", "positions", replace(rows, positions=far)),
        *(
            (f"training, W+{n}" if n else "training, W", "training", _training(rows.first(window + n)))
            for n in range(4)
        ),
        ("left padding, training", "training", _training(left)),
        ("packed, training", "training", _training(packed)),
        *(
            (name, "cache operations", replace(rows, steps=(Forward(held), step, *rest)))
            for name, step in cache_operations(held).items()
        ),
        (
            "reorder, padded",
            "cache operations",
            replace(left, steps=(Forward(held), Reorder((2, 0, 1)), Forward(width - held))),
        ),
    ]


def _on_another(setting: Setting, number: int, checkpoint: Checkpoint) -> list[Probe]:
    rungs = [rung for rung in _plain(checkpoint) if rung[0] in ("beyond the window", "one at a time from 2")]
    found = [_probe(f"{name}, model {number}", phase, checkpoint, feed) for name, phase, feed in rungs]
    return [probe for probe in found if probe.feed.requires <= setting.capabilities]


def _shown(fault: Fault, probes: Iterable[Probe]) -> bool:
    return any(fault.applies(probe.spec, probe.feed) for probe in probes)


def _training(feed: Feed) -> Feed:
    return replace(feed, mode="training")


def _typed(probe: Probe, dtype: str) -> Probe:
    return Probe(f"{probe.name}, BF16", probe.phase, probe.checkpoint, replace(probe.feed, dtype=dtype))


def _probe(name: str, phase: str, checkpoint: Checkpoint, feed: Feed) -> Probe:
    return Probe(name, phase, checkpoint, feed)


def _feed(of: Checkpoint, rows: int, columns: int, purpose: int) -> Feed:
    """Uniform tokens, fed whole; equal arguments give equal ones."""
    draws = np.random.default_rng([of.seed or 0, purpose])
    drawn = draws.integers(0, of.spec.vocab_size, (rows, columns))
    return Feed(tokens=tuple(tuple(int(token) for token in row) for row in drawn), steps=(Forward(columns),))
