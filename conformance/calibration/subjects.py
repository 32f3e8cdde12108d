"""What the study feeds: models that the cases draw too, and texts of many kinds on each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.families.base import Spec
from conformance.feeds import Feed, Forward, Reorder
from conformance.operations import cache_operations
from conformance.trials import models

__all__ = ["DTYPES", "LONG", "SAME_TEXT", "Subject", "engine_feeds", "fault_feeds", "subjects"]

DTYPES = ("float32", "bfloat16")
ROWS, WIDTH, LONG = 4, 56, 256
SHIFT = 100
# Feeds of one text fed otherwise: each should give what `whole` gives, row for row.
SAME_TEXT: Mapping[str, slice] = {"decode": slice(None), "split": slice(None), "alone": slice(0, 1)}


@dataclass(frozen=True)
class Subject:
    """One model of the study.

    Attributes:
        release: whose model it is.
        number: from 1, within its release.
        checkpoint: the model on disk.
    """

    release: str
    number: int
    checkpoint: Checkpoint

    @property
    def spec(self) -> Spec:
        """Its configuration."""
        return self.checkpoint.spec

    def tokens(self, rows: int, columns: int, purpose: int) -> tuple[tuple[int, ...], ...]:
        """Uniform tokens; equal arguments give equal ones."""
        draws = np.random.default_rng([self.number, self.checkpoint.seed or 0, purpose])
        drawn = draws.integers(0, self.spec.vocab_size, (rows, columns))
        return tuple(tuple(int(token) for token in row) for row in drawn)

    def numbers(self, least: int, most: int, count: int, purpose: int) -> list[int]:
        """Different whole numbers from `least` to `most`, ascending."""
        draws = np.random.default_rng([self.number, self.checkpoint.seed or 0, purpose])
        return sorted(int(n) for n in draws.choice(np.arange(least, most + 1), count, replace=False))


def subjects(
    family: str, release: str, limits: Iterable[Mapping[str, Any]], count: int, checkpoints: Path
) -> list[Subject]:
    """`count` models of a release, in equal parts within each of some backends' limits."""
    different = list({repr(sorted(one.items())): one for one in limits}.values())
    found: list[tuple[Spec, int]] = []
    for place, bounds in enumerate(different):
        share = count // len(different) + (place < count % len(different))
        if share:
            found += models(family, release, bounds, share)
    return [
        Subject(release, number, write_checkpoint(checkpoints, spec, seed))
        for number, (spec, seed) in enumerate(dict.fromkeys(found), 1)
    ]


def engine_feeds(of: Subject) -> dict[str, Feed]:
    """Feeds for engines that conform, by name, in float32; the longest one first.

    One long row; four rows together, one at a time and in chunks, one of them alone, unequal ones with
    and without padding; rows of three tokens only, whose positions are hardly different; shifted ones.
    """
    whole = _whole(of.tokens(ROWS, WIDTH, 1))
    few = np.random.default_rng(of.number).choice(of.spec.vocab_size, 3, replace=False)
    three = tuple(tuple(int(few[token % 3]) for token in row) for row in of.tokens(2, 40, 2))
    cuts = [0, *of.numbers(1, WIDTH - 1, 5, 3), WIDTH]
    chunks = [after - before for before, after in pairwise(cuts)]
    lengths = (WIDTH, *of.numbers(1, WIDTH - 1, ROWS - 1, 4))
    places = tuple(range(SHIFT, SHIFT + WIDTH))
    return {
        "long": _whole(of.tokens(1, LONG, 5)),
        "whole": whole,
        "decode": whole.token_by_token(of.spec.window_size),
        "split": whole.split(chunks),
        "alone": whole.row(0),
        "three tokens": _whole(three),
        "left padding": replace(whole, lengths=lengths, padding="left"),
        "ragged": replace(whole, lengths=lengths),
        "shifted": replace(whole, positions=(places,) * ROWS),
    }


def fault_feeds(of: Subject) -> dict[str, Feed]:
    """Feeds for faults, by name, in float32; first those that many faults show on and that cost little."""
    window = of.spec.window_size
    width = 4 * window + 4
    held = 2 * window + 1
    rows = _whole(of.tokens(3, width, 6))
    left = replace(rows, lengths=(width, width - 3, window + 2), padding="left")
    first = [window + 2 + row for row in range(3)]
    packed = replace(rows, segments=tuple((0,) * n + (1,) * (width - n) for n in first))
    # Gaps of another size in each row, for a shift that all positions share changes nothing.
    gaps = tuple(tuple((3 + row) * place for place in range(width)) for row in range(3))
    far = (tuple(301 + 7 * place for place in range(width)),) * 3
    rest = (Forward(2), *(Forward(1),) * (width - held - 2))
    return {
        "whole": rows,
        "split": rows.split([3, 2 * window, window + 1]),
        "long": _whole(of.tokens(1, 66, 7)),
        "decode": rows.token_by_token(2),
        "decode beyond the window": rows.token_by_token(window + 2),
        **{f"training, W+{n}": replace(rows.first(window + n), mode="training") for n in range(4)},
        "left padding": left,
        "left padding, decode": left.token_by_token(2 * window),
        "left padding, training": replace(left, mode="training"),
        "right padding": replace(left, padding="right"),
        "segments": packed,
        "segments, split": packed.split([5, 4, 3]),
        "segments, training": replace(packed, mode="training"),
        "gaps": replace(rows, positions=gaps),
        "far": replace(rows, positions=far),
        **{
            name: replace(rows, steps=(Forward(held), step, *rest))
            for name, step in cache_operations(held).items()
        },
        "reorder, padded": replace(left, steps=(Forward(held), Reorder((2, 0, 1)), Forward(width - held))),
    }


def _whole(tokens: Sequence[tuple[int, ...]]) -> Feed:
    return Feed(tokens=tuple(tokens), steps=(Forward(len(tokens[0])),))
