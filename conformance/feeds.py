"""Feeds: what is fed to a model and how, as data that host and workers share.

A feed is a rectangle of tokens, fed left to right in steps. A forward step takes the next columns;
other steps act on the cache between forwards. A run answers with logits for every fed position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.errors import BadInput

__all__ = [
    "CAPABILITIES",
    "DTYPES",
    "Crop",
    "Feed",
    "Forward",
    "Phase",
    "Reorder",
    "Reset",
    "Step",
    "parse_feed",
]

DTYPES = ("float32", "bfloat16", "float64")
MODES = ("evaluation", "training", "training-nograd")

# What a feed may ask of a backend; an adapter lists those that it has.
CAPABILITIES: Mapping[str, str] = {
    "batch": "several rows in one run",
    "decode": "one token at a time after a prefill, over a cache",
    "chunked": "several tokens at a time on top of a cache",
    "ragged": "rows of unequal length in one run, each fed without padding",
    "left-padding": "rows padded on the left, with a mask",
    "right-padding": "rows padded on the right, with a mask",
    "training": "the model's training mode",
    "positions": "an argument for position ids",
    "segments": "packed rows with a mask between their segments",
    "crop": "cut the cache back to a length",
    "reset": "empty the cache and use it again",
    "reorder": "permute or repeat the cache's rows",
}


@dataclass(frozen=True)
class Forward:
    """Feed the next `columns` columns of tokens."""

    columns: int


@dataclass(frozen=True)
class Crop:
    """Cut the cache back to its first `length` tokens."""

    length: int


@dataclass(frozen=True)
class Reset:
    """Empty the cache, keeping the object."""


@dataclass(frozen=True)
class Reorder:
    """Make cache row r the former row `rows[r]`; rows may repeat (a fork) but not change in number."""

    rows: tuple[int, ...]


Step = Forward | Crop | Reset | Reorder


@dataclass(frozen=True)
class Phase:
    """The columns of one forward step, and the earlier columns that are its context.

    Attributes:
        context: per row, the (row, column) cells in the cache when the step begins.
        start: first new column.
        columns: number of new columns.
    """

    context: tuple[tuple[tuple[int, int], ...], ...]
    start: int
    columns: int


@dataclass(frozen=True, kw_only=True)
class Feed:
    """One way to feed one batch.

    Attributes:
        tokens: [B][T] token ids; cells outside a row's `lengths` are padding.
        steps: how the T columns are fed; forward columns sum to T.
        mode: `evaluation`, `training` or `training-nograd`. Training feeds run without a cache.
        dtype: the dtype of weights and activations.
        lengths: real tokens of each row, or None where all are T long.
        padding: `left` or `right`; None where rows are equally long, or unequal and fed unpadded.
        positions: [B][T] position ids, or None to count from each row's first real token.
        segments: [B][T] segment ids: a key is visible only within its segment; None for one segment.
    """

    tokens: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    mode: str = "evaluation"
    dtype: str = "float32"
    lengths: tuple[int, ...] | None = None
    padding: str | None = None
    positions: tuple[tuple[int, ...], ...] | None = None
    segments: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if not self.tokens or not self.tokens[0]:
            raise BadInput("tokens = an empty batch, but should be at least one row of one token")
        if any(len(row) != self.width for row in self.tokens):
            raise BadInput(
                "tokens = rows of unequal length, but should be a rectangle; give lengths and padding"
            )
        if self.mode not in MODES:
            raise BadInput.value("mode", self.mode, " or ".join(MODES))
        if self.dtype not in DTYPES:
            raise BadInput.value("dtype", self.dtype, " or ".join(DTYPES))
        if self.padding not in (None, "left", "right"):
            raise BadInput.value("padding", self.padding, "left, right or null")
        for step in self.steps:
            _check_step(step, self.batch)
        fed = sum(self.chunks)
        if fed != self.width:
            raise BadInput.value("steps", f"{fed} columns", f"{self.width}, the width of tokens")
        if self.lengths is not None and (
            len(self.lengths) != self.batch or not all(0 < n <= self.width for n in self.lengths)
        ):
            raise BadInput.value("lengths", self.lengths, f"{self.batch} numbers from 1 to {self.width}")
        for name in ("positions", "segments"):
            grid = getattr(self, name)
            if grid is not None and [len(row) for row in grid] != [self.width] * self.batch:
                raise BadInput.value(name, "another shape", f"[{self.batch}][{self.width}], as tokens")

    @property
    def batch(self) -> int:
        """B, the number of rows."""
        return len(self.tokens)

    @property
    def width(self) -> int:
        """T, the number of columns."""
        return len(self.tokens[0])

    @property
    def chunks(self) -> tuple[int, ...]:
        """Columns of each forward step."""
        return tuple(step.columns for step in self.steps if isinstance(step, Forward))

    @property
    def real(self) -> tuple[range, ...]:
        """The columns of each row that hold real tokens."""
        if self.lengths is None:
            return (range(self.width),) * self.batch
        if self.padding == "left":
            return tuple(range(self.width - n, self.width) for n in self.lengths)
        return tuple(range(n) for n in self.lengths)

    @property
    def requires(self) -> frozenset[str]:
        """The capabilities that a backend needs to run this feed."""
        needed: set[str] = set()
        if self.batch > 1:
            needed.add("batch")
        if len(self.chunks) > 1:
            needed.update("decode" if n == 1 else "chunked" for n in self.chunks[1:])
        if self.lengths is not None and len(set(self.lengths) | {self.width}) > 1:
            needed.add(f"{self.padding}-padding" if self.padding else "ragged")
        if self.mode != "evaluation":
            needed.add("training")
        if self.positions is not None:
            needed.add("positions")
        if self.segments is not None:
            needed.add("segments")
        for step in self.steps:
            if not isinstance(step, Forward):
                needed.add(type(step).__name__.lower())
        return frozenset(needed)

    @property
    def key(self) -> str:
        """A hash that names this feed: equal feeds, equal keys."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def split(self, chunks: Iterable[int]) -> Feed:
        """The same tokens, fed in these chunks; a last chunk takes what remains."""
        sizes = [n for n in chunks if n > 0]
        rest = self.width - sum(sizes)
        if rest < 0:
            raise BadInput.value("chunks", sizes, f"at most {self.width} columns in all")
        return replace(self, steps=tuple(Forward(n) for n in [*sizes, *([rest] if rest else [])]))

    def whole(self) -> Feed:
        """The same tokens in one forward step."""
        return replace(self, steps=(Forward(self.width),))

    def token_by_token(self, prefill: int = 1) -> Feed:
        """The same tokens: a prefill, then one at a time."""
        return self.split([prefill, *[1] * (self.width - prefill)])

    def first(self, columns: int) -> Feed:
        """The first columns of a plain feed, whole."""
        if self.lengths or self.positions or self.segments:
            raise BadInput(
                "feed = one with lengths, positions or segments, but should be plain to be shortened"
            )
        return replace(self, tokens=tuple(row[:columns] for row in self.tokens), steps=(Forward(columns),))

    def row(self, index: int) -> Feed:
        """One row alone, without its padding."""
        cells = self.real[index]
        cut = slice(cells.start, cells.stop)
        return replace(
            self,
            tokens=(self.tokens[index][cut],),
            steps=(Forward(len(cells)),),
            lengths=None,
            padding=None,
            positions=None if self.positions is None else (self.positions[index][cut],),
            segments=None if self.segments is None else (self.segments[index][cut],),
        )

    def phases(self) -> tuple[Phase, ...]:
        """Forward steps with the context that each one sees, cache operations applied.

        This is the meaning of a feed: an engine's cache must behave as if every step were computed
        from the tokens of its context.
        """
        phases: list[Phase] = []
        cache: list[list[tuple[int, int]]] = [[] for _ in range(self.batch)]
        column = 0
        for step in self.steps:
            match step:
                case Forward(columns):
                    phases.append(Phase(tuple(tuple(row) for row in cache), column, columns))
                    for row, cells in enumerate(cache):
                        cells.extend((row, c) for c in range(column, column + columns))
                    column += columns
                case Crop(length):
                    cache = [cells[:length] for cells in cache]
                case Reset():
                    cache = [[] for _ in cache]
                case Reorder(rows):
                    cache = [list(cache[row]) for row in rows]
        return tuple(phases)

    def meaning(self) -> Feed:
        """The feed in evaluation mode, its chunks merged wherever chunking cannot change the meaning.

        The reference computes this one, so that every chunking of the same tokens is judged by the
        same run.
        """
        merged: list[Step] = []
        for step in self.steps:
            if isinstance(step, Forward) and merged and isinstance(merged[-1], Forward):
                merged[-1] = Forward(merged[-1].columns + step.columns)
            else:
                merged.append(step)
        return replace(self, steps=tuple(merged), mode="evaluation")

    def describe(self) -> str:
        """The feed in a few words: ``2 rows x 12, split 3-6-3, float32``."""
        chunks = self.chunks
        if len(chunks) == 1:
            how = "whole"
        elif set(chunks[1:]) == {1}:
            how = f"prefill {chunks[0]} then one at a time"
        else:
            how = "split " + "-".join(map(str, chunks))
        extra = [type(s).__name__.lower() for s in self.steps if not isinstance(s, Forward)]
        rows = "1 row" if self.batch == 1 else f"{self.batch} rows"
        words = [f"{rows} x {self.width}", how, *extra, self.dtype]
        if self.mode != "evaluation":
            words.append(self.mode)
        if self.padding:
            words.append(f"{self.padding} padding")
        words += [name for name in ("positions", "segments") if getattr(self, name) is not None]
        return ", ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """The feed as JSON (docs/protocol.md)."""
        return {
            "tokens": [list(row) for row in self.tokens],
            "steps": [_step_to_dict(step) for step in self.steps],
            "mode": self.mode,
            "dtype": self.dtype,
            "lengths": None if self.lengths is None else list(self.lengths),
            "padding": self.padding,
            "positions": None if self.positions is None else [list(row) for row in self.positions],
            "segments": None if self.segments is None else [list(row) for row in self.segments],
        }


def parse_feed(data: Mapping[str, Any]) -> Feed:
    """Read a feed back from `Feed.to_dict`.

    Raises:
        BadInput: a key is missing or a value does not fit.
    """

    def grid(name: str) -> tuple[tuple[int, ...], ...] | None:
        rows = data.get(name)
        return None if rows is None else tuple(tuple(row) for row in rows)

    for name in ("tokens", "steps"):
        if data.get(name) is None:
            raise BadInput(f"{name} is missing, but a feed needs it")
    lengths = data.get("lengths")
    return Feed(
        tokens=grid("tokens") or (),
        steps=tuple(_parse_step(step) for step in data["steps"]),
        mode=data.get("mode", "evaluation"),
        dtype=data.get("dtype", "float32"),
        lengths=None if lengths is None else tuple(lengths),
        padding=data.get("padding"),
        positions=grid("positions"),
        segments=grid("segments"),
    )


def _check_step(step: Step, batch: int) -> None:
    match step:
        case Forward(columns) if columns < 1:
            raise BadInput.value("columns", columns, "1 or more")
        case Crop(length) if length < 0:
            raise BadInput.value("length", length, "0 or more")
        case Reorder(rows) if len(rows) != batch or not all(0 <= row < batch for row in rows):
            raise BadInput.value("rows", rows, f"{batch} numbers from 0 to {batch - 1}")


def _step_to_dict(step: Step) -> dict[str, Any]:
    match step:
        case Forward(columns):
            return {"op": "forward", "columns": columns}
        case Crop(length):
            return {"op": "crop", "length": length}
        case Reset():
            return {"op": "reset"}
        case Reorder(rows):
            return {"op": "reorder", "rows": list(rows)}


def _parse_step(data: Mapping[str, Any]) -> Step:
    match data:
        case {"op": "forward", "columns": int(columns)}:
            return Forward(columns)
        case {"op": "crop", "length": int(length)}:
            return Crop(length)
        case {"op": "reset"}:
            return Reset()
        case {"op": "reorder", "rows": [*rows]}:
            return Reorder(tuple(rows))
    raise BadInput.value("steps", data, "forward, crop, reset or reorder with its argument")
