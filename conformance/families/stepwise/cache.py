"""What a deviating model's layers remember between forward steps, and operations on it.

A right cache of a local layer may forget what its window hides. This one forgets nothing unless a knob
says so: what an implementation has dropped, moved or failed to move is told by what is seen of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL, Spec
from conformance.families.stepwise.knobs import StepKnobs

__all__ = ["UNKNOWN", "Log", "Memory"]

UNKNOWN = -1


@dataclass
class Log:
    """Everything that the layers of one kind were fed, oldest first.

    Attributes:
        positions: [B, S], the positions that keys are rotated to.
        segments: [B, S], segments as the mask knows them; -1 where it hides a key from everybody.
        keys: layer → [B, S, K, d], after k_norm and before RoPE.
        values: layer → [B, S, K, d].
        lost: how many of the oldest are gone.
        ring: what each slot of a ring holds, as indices into the log.
    """

    positions: Tensor
    segments: Tensor
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    lost: int = 0
    ring: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """S, the number of tokens."""
        return self.positions.shape[1]

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the new K and V of one layer, and return all of them."""
        if layer in self.keys:
            keys = torch.cat([self.keys[layer], keys], dim=1)
            values = torch.cat([self.values[layer], values], dim=1)
        self.keys[layer], self.values[layer] = keys, values
        return keys, values

    def keep(self, start: int, stop: int) -> None:
        """Keep the tokens `start` … `stop` − 1."""
        self.positions, self.segments = self.positions[:, start:stop], self.segments[:, start:stop]
        self.keys = {layer: k[:, start:stop] for layer, k in self.keys.items()}
        self.values = {layer: v[:, start:stop] for layer, v in self.values.items()}
        self.lost = min(max(self.lost - start, 0), self.size)
        self.ring = {slot: index - start for slot, index in self.ring.items() if start <= index < stop}


class Memory:
    """The cache of one run: a log for each kind of layer, and how many tokens it believes to hold.

    Attributes:
        logs: kind → what its layers remember.
        count: tokens fed, as positions count them.
        prefilled: tokens of the first forward step.
        first: [B], the place of each row's first real token, or `UNKNOWN`.
    """

    def __init__(self, spec: Spec, knobs: StepKnobs, batch: int) -> None:
        empty = torch.zeros(batch, 0, dtype=torch.int64)
        self.spec, self.knobs = spec, knobs
        self.logs = {kind: Log(empty, empty) for kind in (LOCAL, GLOBAL)}
        self.count = 0
        self.prefilled = 0
        self.first = torch.full((batch,), UNKNOWN)

    def reset(self) -> None:
        """Empty the cache."""
        if self.knobs.reset == "ignored":
            return
        for kind, log in self.logs.items():
            if self.knobs.reset == "zeroes":
                log.keys = {layer: torch.zeros_like(k) for layer, k in log.keys.items()}
                log.values = {layer: torch.zeros_like(v) for layer, v in log.values.items()}
            elif kind == GLOBAL or self.knobs.reset != "keeps local":
                log.keep(0, 0)
        if self.knobs.reset != "zeroes":
            self._cut_count(0)

    def crop(self, length: int) -> None:
        """Cut the cache back to its first `length` tokens; a longer length changes nothing."""
        knobs = self.knobs
        if length == 0 and knobs.crop_to_zero == "ignored":
            return
        if length > self.count and knobs.crop_past_end != "kept":
            if knobs.crop_past_end == "counted":
                self.count = length
                return
            length = 0
        if 0 < length < self.count:
            length = min(length + knobs.crop_error, self.count)
        if length >= self.count or knobs.crop == "ignored":
            return
        self._crop_local(self.logs[LOCAL], length)
        self.logs[GLOBAL].keep(0, length)
        self._cut_count(length)

    def reorder(self, rows: tuple[int, ...]) -> None:
        """Make row r the former row `rows[r]`."""
        rule = self.knobs.reorder
        former = torch.tensor(rows)
        mask_moves = self.knobs.reorder_mask == "moves"
        if mask_moves:
            self.first = self.first[former]
        for kind, log in self.logs.items():
            if mask_moves:
                log.segments = log.segments[former]
            if rule in ("all", "keys only", f"{kind} only"):
                log.positions = log.positions[former]
                log.keys = {layer: k[former] for layer, k in log.keys.items()}
            if rule in ("all", f"{kind} only"):
                log.values = {layer: v[former] for layer, v in log.values.items()}

    def _crop_local(self, log: Log, length: int) -> None:
        # What a ring that holds what the next token needs has dropped by now.
        evicted = max(0, log.size - (self.spec.window_span - 1))
        match self.knobs.crop:
            case "ignored when wrapped" if evicted:
                return
            case "slice of ring" if evicted:
                log.keep(evicted, evicted + length)
            case "evicted lost":
                log.lost = max(log.lost, evicted)
                log.keep(0, length)
            case _:
                log.keep(0, length)

    def _cut_count(self, length: int) -> None:
        self.count = length
        self.first = torch.where(self.first >= length, UNKNOWN, self.first)
