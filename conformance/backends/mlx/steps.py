"""A feed as the calls that mlx-lm's batches make: right-padded chunks, rows leaving when they end."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.feeds import Feed

__all__ = ["Chunk", "chunks", "left_padding"]


@dataclass(frozen=True)
class Chunk:
    """One call of the model.

    Attributes:
        start: first column.
        columns: width of the call.
        lengths: for each row of the feed, how many of its cells, from the first, are fed to be kept; the
            others are right padding. 0 for a row that has ended: it is no longer in the batch.
    """

    start: int
    columns: int
    lengths: tuple[int, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows that are in the call."""
        return tuple(row for row, length in enumerate(self.lengths) if length)

    @property
    def padding(self) -> tuple[int, ...]:
        """Right padding of each row that is in the call."""
        return tuple(self.columns - self.lengths[row] for row in self.rows)


def chunks(feed: Feed) -> tuple[Chunk, ...]:
    """The calls of a feed, one for each forward step; those in which no row has a token left are dropped.

    Left padding is fed like tokens: the cache knows how much of it there is and hides it.
    """
    made: list[Chunk] = []
    start = 0
    for columns in feed.chunks:
        stop = start + columns
        lengths = tuple(max(0, min(stop, cells.stop) - start) for cells in feed.real)
        if any(lengths):
            made.append(Chunk(start, columns, lengths))
        start = stop
    return tuple(made)


def left_padding(feed: Feed) -> tuple[int, ...]:
    """Cells before each row's first token."""
    return tuple(cells.start for cells in feed.real)
