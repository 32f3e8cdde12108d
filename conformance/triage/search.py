"""The search for the smallest set of faults that leaves nothing but rounding, probe by probe.

Probes come plainest first. As long as some hypothesis explains them all, hypotheses that fail one are
dropped; when none is left, the former ones grow by the fewest faults that explain the new probe too and
spoil no earlier one. So faults that show at different places are found one after another, and only those
that first show on the same probe have to be guessed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from conformance.compare.verdict import ROUNDING
from conformance.faults import NOTHING, Fault
from conformance.faults import ROUNDING as ONLY_ROUNDS
from conformance.triage.predictions import Faults, Predictions
from conformance.triage.readings import Reading, explained, share_of

__all__ = ["Rival", "Search", "share_left"]

# An effect of this many times the noise, where the backend shows none, rules a fault out.
_PLAIN = 8 * ROUNDING
# A prediction that leaves less than this share of what was left before is worth measuring its own noise.
_PROMISING = 0.5
# Bounds of the work: hypotheses that grow, pairs and triples tried on a probe of one step (fewer on longer
# ones, which cost more), and how many at a time.
_GROWING, _PAIRS, _TRIPLES, _BATCH = 8, 1600, 800, 200


@dataclass(frozen=True)
class Rival:
    """A hypothesis that does not explain a probe.

    Attributes:
        faults: its faults.
        probe: name of the probe that it was tried on.
        left: share of the difference that it leaves there (`share_left`).
        worst: largest error / noise that it leaves there.
    """

    faults: Faults
    probe: str
    left: float
    worst: float


@dataclass
class Search:
    """The state of a search.

    Args:
        predictions: of the family.
        bank: faults that may be named, in the order in which equals are named.

    Attributes:
        hypotheses: the sets that explain every reading so far; one empty set at first.
        readings: those that are explained.
        stuck: the first reading that no set was found for, or None.
        rivals: what was tried and left something, best first.
    """

    predictions: Predictions
    bank: Sequence[Fault]
    hypotheses: list[Faults] = field(default_factory=lambda: [()])
    readings: list[Reading] = field(default_factory=list)
    stuck: Reading | None = None
    rivals: list[Rival] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = {fault.id: place for place, fault in enumerate(self.bank)}
        self._rounding = {fault.id for fault in self.bank if fault.rounds}
        self._names = tuple(f.id for f in self.bank if f.reveals not in (NOTHING, ONLY_ROUNDS))

    def take(self, reading: Reading) -> None:
        """Take in the next reading; nothing more once the search is stuck."""
        if self.stuck is not None:
            return
        self.predictions.exact(reading.probe, self.hypotheses)
        kept = [faults for faults in self.hypotheses if self.explains(reading, faults)]
        grown = kept or self._grow(reading)
        if not grown:
            self.stuck = reading
            return
        self.hypotheses = grown
        self.readings.append(reading)

    def explains(self, reading: Reading, faults: Faults) -> bool:
        """Does the reference with these faults leave nothing but rounding on this probe?"""
        return explained(self.left(reading, faults))

    def left(self, reading: Reading, faults: Faults) -> np.ndarray:
        """Error / noise [N] of the backend from the reference with these faults.

        The noise is the reference's; where that leaves something, and the prediction is promising, the
        larger of it and the noise of the faulty reference itself. BF16 probes come last and confirm, so
        there it is always measured: what is large in a faulty model is rounded by as much.

        Args:
            reading: the backend's answer.
            faults: what it may do wrong.
        """
        # Without faults, only the noise that everybody is judged by.
        least_share = np.inf if faults and reading.probe.feed.dtype == "bfloat16" else 1.0
        off = self._left(reading, faults, least_share)
        if explained(off) or self.predictions.visible(reading.probe, faults) in ((), faults):
            return off
        # One of them may undo what hides another.
        together = self._left(reading, faults, least_share, together=True)
        return together if explained(together) else off

    def _left(
        self, reading: Reading, faults: Faults, base_share: float, *, together: bool = False
    ) -> np.ndarray:
        """As `left`; `base_share` is the share of the difference that fewer faults leave."""
        exact = self.predictions.exact(reading.probe, [faults], together=together)[faults]
        off = reading.off(exact, reading.truth.noise)
        if explained(off) or share_left(reading, exact) > _PROMISING * base_share:
            return off
        truth = self.predictions.truth(reading.probe, faults, together=together)
        if truth is None or truth.noise.shape != reading.truth.noise.shape:
            return off
        noise = np.fmax(truth.noise, reading.truth.noise)  # NaN where the faulty reference gives NaN
        return reading.off(truth.logits, noise)

    def _grow(self, reading: Reading) -> list[Faults]:
        bases = self.hypotheses[:_GROWING]
        found = self._with_one(reading, bases)
        for base in bases if not found else ():
            found += self._with_several(reading, base)
        return self._sorted(found)

    def _with_one(self, reading: Reading, bases: Iterable[Faults]) -> list[Faults]:
        found: list[Faults] = []
        for base in bases:
            sets = self._longer(reading, base)
            self.predictions.exact(reading.probe, sets)
            found += self._explaining(reading, sets, base)
        return found

    def _longer(self, reading: Reading, base: Faults) -> list[Faults]:
        """The base with each fault that can show on the probe and be in one model with it."""
        names = self.predictions.visible(reading.probe, self._names)
        sets = [self._set(*base, name) for name in names if name not in base]
        return [faults for faults in sets if self.predictions.compatible(faults)]

    def _with_several(self, reading: Reading, base: Faults) -> list[Faults]:
        """The base with two faults that first show on this probe, or else with three."""
        effects = self._effects(reading, base)
        if not effects:
            return []
        steps = len(reading.probe.feed.chunks)
        pairs = self._ranked(reading, base, effects, combinations(effects, 2), _PAIRS // steps)
        found = self._first_explaining(reading, pairs, base)
        if found or len(effects) < 3:
            return found
        best = sorted(pairs, key=lambda faults: self._share(reading, faults))[:30]
        triples = {self._set(*pair, name) for pair in best for name in effects if name not in pair}
        kept = [faults for faults in triples if self.predictions.compatible(faults)]
        return self._first_explaining(reading, self._sorted(kept)[: _TRIPLES // steps], base)

    def _effects(self, reading: Reading, base: Faults) -> dict[str, np.ndarray]:
        """Fault → what it changes [N, V], for those that can be part of an explanation here."""
        known = self.predictions.exact(reading.probe, [base])[base]
        before = self.left(reading, base)
        got = reading.run.logits
        if known is None or got is None or got.shape != known.shape:
            return {}
        found: dict[str, np.ndarray] = {}
        for faults in self._longer(reading, base):
            (name,) = set(faults) - set(base)
            exact = self.predictions.exact(reading.probe, [faults])[faults]
            if exact is None or exact.shape != known.shape or not np.isfinite(exact).all():
                continue
            change = (exact - known)[reading.cells]
            size = np.abs(change).max(axis=-1) / reading.truth.noise[reading.cells]
            shows = bool((size > ROUNDING).any())
            if shows and not (size[before <= ROUNDING] > _PLAIN).any() and self._spoils_nothing(faults):
                found[name] = change
        return found

    def _spoils_nothing(self, faults: Faults) -> bool:
        return all(self.explains(reading, faults) for reading in self.readings)

    def _ranked(
        self,
        reading: Reading,
        base: Faults,
        effects: dict[str, np.ndarray],
        groups: Iterable[tuple[str, ...]],
        most: int,
    ) -> list[Faults]:
        """Sets that cover all that is to be explained, those first whose effects add up to it best."""
        names = list(effects)
        place = {name: number for number, name in enumerate(names)}
        known = self.predictions.exact(reading.probe, [base])[base]
        logits = reading.run.logits
        assert known is not None
        assert logits is not None
        noise = reading.truth.noise[reading.cells][:, None]
        target = ((logits - known)[reading.cells] / noise).ravel()
        stack = np.stack([(effects[name] / noise).ravel() for name in names])
        stack, target = np.sign(stack) * np.log1p(np.abs(stack)), np.sign(target) * np.log1p(np.abs(target))
        gram, along = stack @ stack.T, stack @ target
        covers = np.stack([np.abs(effects[name]).max(axis=-1) / noise[:, 0] > ROUNDING for name in names])
        needed = np.asarray(self.left(reading, base) > _PLAIN)
        scored: list[tuple[float, Faults]] = []
        for group in groups:
            which = [place[name] for name in group]
            faults = self._set(*base, *group)
            covered = np.asarray(covers[which].any(axis=0))
            if not covered[needed].all() or not self.predictions.compatible(faults):
                continue
            own = gram[np.ix_(which, which)].sum()
            scored.append((float(own - 2 * along[which].sum()), faults))
        scored.sort(key=lambda one: one[0])
        return [faults for _, faults in scored[:most]]

    def _first_explaining(self, reading: Reading, sets: Sequence[Faults], base: Faults) -> list[Faults]:
        for start in range(0, len(sets), _BATCH):
            batch = sets[start : start + _BATCH]
            self.predictions.exact(reading.probe, batch)
            found = self._explaining(reading, batch, base)
            if found:
                return found
        return []

    def _explaining(self, reading: Reading, sets: Iterable[Faults], base: Faults) -> list[Faults]:
        found: list[Faults] = []
        base_share = self._share(reading, base)
        for faults in sets:
            left = self._left(reading, faults, base_share)
            if explained(left) and self._is_earned(reading, faults, base) and self._spoils_nothing(faults):
                found.append(faults)
            elif not explained(left):
                share = self._share(reading, faults)
                self.rivals.append(Rival(faults, reading.probe.name, share, float(left.max())))
        self.rivals.sort(key=lambda rival: rival.left)
        del self.rivals[50:]
        return found

    def _is_earned(self, reading: Reading, faults: Faults, base: Faults) -> bool:
        """Does each new fault that rounds explain more than the noise that it brings?

        Beside other faults, its noise alone would cover whatever little they leave.
        """
        for name in set(faults) & self._rounding - set(base) if len(faults) > 1 else ():
            others = tuple(other for other in faults if other != name)
            truth = self.predictions.truth(reading.probe, faults)
            if truth is None or truth.noise.shape != reading.truth.noise.shape:
                continue
            exact = self.predictions.exact(reading.probe, [others])[others]
            if explained(reading.off(exact, np.fmax(truth.noise, reading.truth.noise))):
                return False
        return True

    def _share(self, reading: Reading, faults: Faults) -> float:
        return share_left(reading, self.predictions.exact(reading.probe, [faults])[faults])

    def _set(self, *names: str) -> Faults:
        return tuple(sorted(names, key=self._order.__getitem__))

    def _sorted(self, sets: Iterable[Faults]) -> list[Faults]:
        """Fewest faults first, then in bank order."""
        unique = dict.fromkeys(sets)
        return sorted(unique, key=lambda faults: (len(faults), [self._order[name] for name in faults]))


def share_left(reading: Reading, want: np.ndarray | None) -> float:
    """Which share of the difference from the reference some logits leave (`share_of`)."""
    return share_of(reading.plain, reading.off(want, reading.truth.noise))
