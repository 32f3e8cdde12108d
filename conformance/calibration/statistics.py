"""Statistics of rare events: intervals for a rate, and how a tail goes on beyond what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Tail", "clopper_pearson", "fit_tail"]

_HALVINGS = 64


def clopper_pearson(events: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a rate: `events` in `trials` independent trials.

    Raises:
        ValueError: there are fewer trials than events, or no trials.
    """
    if not 0 <= events <= trials or trials == 0:
        raise ValueError(f"events = {events} in {trials} trials, but should be 0 to the number of trials")
    miss = (1 - confidence) / 2
    lower = 0.0 if events == 0 else _root(lambda rate: 1 - _at_most(events - 1, trials, rate) - miss)
    upper = 1.0 if events == trials else _root(lambda rate: miss - _at_most(events, trials, rate))
    return lower, upper


def _at_most(events: int, trials: int, rate: float) -> float:
    """The chance of at most `events` in `trials`."""
    if rate in (0.0, 1.0):
        return float(rate == 0.0 or events >= trials)
    counts = np.arange(1, events + 1)
    choose = np.concatenate([[0.0], np.cumsum(np.log(trials - counts + 1.0) - np.log(counts))])
    logs = (
        choose + np.arange(events + 1) * math.log(rate) + (trials - np.arange(events + 1)) * math.log1p(-rate)
    )
    return min(1.0, float(np.exp(logs).sum()))


def _root(increasing: Callable[[float], float]) -> float:
    """Where a function that grows on (0, 1) is 0."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return high


@dataclass(frozen=True)
class Tail:
    """How often ratios are beyond `start`, and two ways in which that may go on.

    Attributes:
        start: where the tail begins.
        beyond: ratios beyond it.
        of: all ratios.
        excess: mean distance of those from `start`: the scale of an exponential tail.
        index: exponent of a power law through the same ratios (Hill's estimate).
    """

    start: float
    beyond: int
    of: int
    excess: float
    index: float

    def exponential(self, ratio: float) -> float:
        """The chance of more than `ratio` if the tail is exponential, as that of a normal error nearly is."""
        return self.beyond / self.of * math.exp(-(ratio - self.start) / self.excess)

    def power(self, ratio: float) -> float:
        """The chance of more than `ratio` if the tail is a power law, the heavier of the two."""
        return float(self.beyond / self.of * (self.start / ratio) ** self.index)


def fit_tail(counts: Mapping[float, int], start: float, of: int) -> Tail:
    """Fit both tails to the ratios beyond `start`, by maximum likelihood.

    Args:
        counts: ratio → how often it was met; at least those beyond `start`, others are left out.
        start: where the tail begins.
        of: how many ratios there were in all.

    Raises:
        ValueError: fewer than two lie beyond `start`.
    """
    beyond = {ratio: count for ratio, count in counts.items() if ratio > start}
    many = sum(beyond.values())
    if many < 2:
        raise ValueError(f"{many} ratios lie beyond {start:g}, but a tail needs two")
    ratios, weights = np.array(list(beyond)), np.array(list(beyond.values()))
    excess = float(weights @ (ratios - start)) / many
    return Tail(start, many, of, excess, many / float(weights @ np.log(ratios / start)))
