"""From a feed to engine steps: what vLLM gets as prompt, what it decodes, and in which chunks."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.feeds import Feed

__all__ = ["Plan", "Row", "plan"]


@dataclass(frozen=True)
class Row:
    """One row of a feed as one request.

    Attributes:
        prompt: tokens given as the prompt, at least one.
        forced: tokens that decoding must choose, one an engine step.
    """

    prompt: tuple[int, ...]
    forced: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens of the row."""
        return len(self.prompt) + len(self.forced)


@dataclass(frozen=True)
class Plan:
    """A feed as requests and engine steps.

    Attributes:
        rows: one request a row.
        steps: columns of each engine step; they sum to the feed's width.
    """

    rows: tuple[Row, ...]
    steps: tuple[int, ...]

    def scheduled(self, step: int) -> tuple[int, ...]:
        """Tokens that this step must compute for each row; 0 for a row that has ended."""
        start = sum(self.steps[:step])
        stop = start + self.steps[step]
        return tuple(max(0, min(stop, row.length) - start) for row in self.rows)


def plan(feed: Feed) -> Plan:
    """Split a feed into prompts and decoded tokens.

    The single columns at the feed's end are decoded; every chunk before them is a chunk of the prompt,
    single columns included, because a request cannot go back from decoding to its prompt.
    """
    chunks = feed.chunks
    first_decoded = len(chunks)
    while first_decoded > 1 and chunks[first_decoded - 1] == 1:
        first_decoded -= 1
    prompt_width = sum(chunks[:first_decoded])
    rows = []
    for tokens, cells in zip(feed.tokens, feed.real, strict=True):
        row = tokens[cells.start : cells.stop]
        rows.append(Row(prompt=row[:prompt_width], forced=row[prompt_width:]))
    return Plan(tuple(rows), chunks)
