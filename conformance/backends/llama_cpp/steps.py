"""A feed as what llama.cpp is asked: batches of tokens with positions and sequences, and cache operations.

llama.cpp knows no rows: every token names the sequence that it belongs to, and sees the tokens of that
sequence that lie at its position or before. So a row is a sequence, and a packed row is several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.errors import Unsupported
from conformance.feeds import Crop, Feed, Forward, Phase, Reorder, Reset

__all__ = ["Call", "Clear", "Decode", "Move", "Plan", "Remove", "Token", "plan"]


@dataclass(frozen=True)
class Token:
    """One cell of a feed, as llama.cpp takes it."""

    row: int
    column: int
    id: int
    position: int
    sequence: int


@dataclass(frozen=True)
class Decode:
    """One batch: `llama_decode`."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Remove:
    """Forget a sequence's tokens from a position on: `llama_memory_seq_rm`."""

    sequence: int
    position: int


@dataclass(frozen=True)
class Clear:
    """Forget everything: `llama_memory_clear`."""


@dataclass(frozen=True)
class Move:
    """Copy sequences to others, then forget some: `llama_memory_seq_cp`, `llama_memory_seq_rm`."""

    copies: tuple[tuple[int, int], ...]
    dropped: tuple[int, ...]


Call = Decode | Remove | Clear | Move


@dataclass(frozen=True)
class Plan:
    """The calls of a feed, and what a context must be made for.

    Attributes:
        calls: in order.
        sequences: how many sequences are named.
        batch: most tokens of one batch.
    """

    calls: tuple[Call, ...]
    sequences: int
    batch: int


def plan(feed: Feed) -> Plan:
    """The calls of a feed.

    Raises:
        Unsupported: packed rows with operations on the cache.
    """
    if feed.segments is not None and not all(isinstance(step, Forward) for step in feed.steps):
        raise Unsupported("does not operate on the cache of packed rows")
    calls = tuple(_calls(feed))
    tokens = [token for call in calls if isinstance(call, Decode) for token in call.tokens]
    copied = [target for call in calls if isinstance(call, Move) for _, target in call.copies]
    return Plan(
        calls,
        sequences=1 + max(*(token.sequence for token in tokens), *copied, 0),
        batch=max(len(call.tokens) for call in calls if isinstance(call, Decode)),
    )


def _calls(feed: Feed) -> Iterator[Call]:
    phases = iter(feed.phases())
    named = _names(feed)
    # Rows move between two ranges of sequences, so that a copy never meets a row that is still needed.
    rows = list(range(feed.batch))
    held: list[list[int]] = [[] for _ in rows]
    for step in feed.steps:
        match step:
            case Forward():
                tokens = tuple(_tokens(feed, next(phases), named, rows, held))
                for token in tokens:
                    held[token.row].append(token.position)
                if tokens:
                    yield Decode(tokens)
            case Crop(length):
                for row, positions in enumerate(held):
                    if len(positions) > length:
                        yield Remove(rows[row], positions[length])
                    del positions[length:]
            case Reset():
                held = [[] for _ in rows]
                yield Clear()
            case Reorder(sources):
                moved = [row + feed.batch if rows[0] < feed.batch else row for row in range(feed.batch)]
                copies = tuple((rows[source], target) for source, target in zip(sources, moved, strict=True))
                yield Move(copies, tuple(rows))
                rows, held = moved, [list(held[source]) for source in sources]


def _tokens(
    feed: Feed, phase: Phase, named: dict[tuple[int, int], int], rows: Sequence[int], held: list[list[int]]
) -> Iterator[Token]:
    for row, cells in enumerate(feed.real):
        first = max(phase.start, cells.start)
        for column in range(first, min(phase.start + phase.columns, cells.stop)):
            position = len(held[row]) + column - first
            if feed.positions is not None:
                position = feed.positions[row][column]
            sequence = rows[row] if feed.segments is None else named[row, feed.segments[row][column]]
            yield Token(row, column, feed.tokens[row][column], position, sequence)


def _names(feed: Feed) -> dict[tuple[int, int], int]:
    """(row, segment) → sequence, numbered as they come."""
    names: dict[tuple[int, int], int] = {}
    for row, segments in enumerate(feed.segments or ()):
        for segment in segments:
            names.setdefault((row, segment), len(names))
    return names
