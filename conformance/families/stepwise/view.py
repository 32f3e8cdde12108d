"""Who sees whom, and at which positions, in one forward step of a deviating model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL, Spec
from conformance.families.stepwise.cache import UNKNOWN, Log, Memory
from conformance.families.stepwise.knobs import StepKnobs

__all__ = ["Chunk", "View", "look"]


@dataclass(frozen=True)
class Chunk:
    """The new columns of one forward step.

    Attributes:
        tokens: [B, T].
        real: bool [B, T], false on padding.
        segments: [B, T], as the mask knows them; -1 where it hides a key from everybody.
        positions: [B, T] given position ids, or None.
        training: is the model in training mode?
        total: columns of the whole feed.
    """

    tokens: Tensor
    real: Tensor
    segments: Tensor
    positions: Tensor | None
    training: bool
    total: int

    @property
    def columns(self) -> int:
        """T."""
        return self.tokens.shape[1]


@dataclass(frozen=True)
class View:
    """What one kind of layer is told of a forward step, over all S keys of its log.

    Attributes:
        query_positions: [B, T].
        key_positions: [B, S].
        hidden: bool [B, 1, 1, T, S], the keys that a query does not see; with `neighbours`, twice as many.
        blind: bool [B, 1, 1, T, 1], the queries that see nothing; None where all see something.
        unfilled: zero keys and values that are seen besides.
        neighbours: the previous row's keys follow a row's own.
    """

    query_positions: Tensor
    key_positions: Tensor
    hidden: Tensor
    blind: Tensor | None
    unfilled: int
    neighbours: bool


def look(memory: Memory, chunk: Chunk, kinds: Iterable[str] = (LOCAL, GLOBAL)) -> dict[str, View]:
    """Take in the new columns, and tell each kind of layer what it sees of the past and of them."""
    new = _positions(memory, chunk)
    views = {kind: _view(memory, kind, memory.logs[kind], chunk, new) for kind in dict.fromkeys(kinds)}
    if memory.count == 0:
        memory.prefilled = chunk.columns
    memory.count += chunk.columns
    return views


def _positions(memory: Memory, chunk: Chunk) -> Tensor:
    """Positions [B, T] of the new tokens: given, or counted from each row's first real token."""
    knobs = memory.knobs
    found = memory.count + chunk.real.int().argmax(dim=1)
    unknown = (memory.first == UNKNOWN) & chunk.real.any(dim=1)
    memory.first = torch.where(unknown, found, memory.first)
    if chunk.positions is not None and knobs.position_ids == "used":
        positions = chunk.positions
    else:
        by_index = knobs.padded_position == "by index" or (
            memory.count > 0 and knobs.padded_position == "by index in decode"
        )
        first = torch.zeros_like(memory.first) if by_index else memory.first.clamp(min=0)
        counted = _counter(memory, chunk.columns) + torch.arange(chunk.columns)
        positions = (counted[None, :] - first[:, None]).clamp(min=0)
    if knobs.rows == "first row's positions":
        positions = positions[:1].expand(len(positions), -1)
    return positions


def _counter(memory: Memory, columns: int) -> int:
    """Where counting starts in this step."""
    knobs, start = memory.knobs, memory.count
    if knobs.past_length == "capped":
        start = min(start, memory.spec.window_size)
    if memory.count > 0 and columns == 1:
        start = {"next": start, "zero": 0, "stuck": memory.prefilled}[knobs.decode_position]
        return start + knobs.decode_shift
    if memory.count > 0 and knobs.chunk_position == "zero":
        return 0
    return start


def _segments(knobs: StepKnobs, chunk: Chunk, past: int) -> Tensor:
    """Segments [B, T] of the new tokens: given, or told from jumps of positions where no mask is given."""
    if knobs.packing == "given" or past or chunk.positions is None or bool((chunk.segments != 0).any()):
        return chunk.segments
    jumps = chunk.positions.diff(dim=1, prepend=chunk.positions[:, :1] - 1) != 1
    return jumps.cumsum(dim=1)


def _view(memory: Memory, kind: str, log: Log, chunk: Chunk, new: Tensor) -> View:
    spec, knobs = memory.spec, memory.knobs
    past, columns = log.size, chunk.columns
    local = kind == LOCAL
    if knobs.local_position == "restarts":
        new = new - _evicted(spec, local, past)
    log.positions = torch.cat([log.positions, new], dim=1)
    log.segments = torch.cat([log.segments, _segments(knobs, chunk, past)], dim=1)
    queries, keys = _rotated_to(spec, knobs, local, log, columns)
    span = _span(spec, knobs, local, past, columns, chunk.training)
    if knobs.distance == "position" and span is not None:
        near = queries[:, :, None] - keys[:, None, :] < span  # [B, T, S]
        band = near & _band(spec, knobs, local, past, columns, None)
    else:
        band = _band(spec, knobs, local, past, columns, span)
    if local:
        band = band & _held(spec, knobs, log, past, columns)
    seen = band & _own(knobs, kind, log.segments, past, chunk.training)
    neighbours = knobs.rows == "see previous row" and not local
    if neighbours:
        others = (log.segments >= 0).roll(1, dims=0)[:, None, :].expand(seen.shape).clone()
        others[0] = False
        seen = torch.cat([seen, others], dim=2)
    blind = None
    if knobs.empty_rows == "uniform":
        seeing = seen.any(dim=2)
        blind = None if bool(seeing.all()) else ~seeing[:, None, None, :, None]
    unfilled = 0
    if past and knobs.unfilled == "seen in all" and not local:
        unfilled = max(0, chunk.total - log.size)
    elif past and knobs.unfilled != "hidden" and local:
        unfilled = max(0, spec.window_span - log.size)
    return View(queries, keys, ~seen[:, None, None], blind, unfilled, neighbours)


def _evicted(spec: Spec, local: bool, past: int) -> int:
    """What a local layer's cache has dropped, if it keeps no more than the next token needs."""
    return max(0, past - (spec.window_span - 1)) if local else 0


def _rotated_to(spec: Spec, knobs: StepKnobs, local: bool, log: Log, columns: int) -> tuple[Tensor, Tensor]:
    """The positions that queries [B, T] and keys [B, S] are rotated to."""
    total = log.size
    past = total - columns
    queries, keys = log.positions[:, past:], log.positions
    if past and knobs.query_counter == "after update":
        queries = queries + columns
    evicted = _evicted(spec, local, past)
    if knobs.local_key_position == "retained row":
        keys = keys - evicted
    elif knobs.local_key_position == "ring slot" and evicted and columns == 1:
        keys = (torch.arange(total) % spec.window_span).expand(len(keys), -1)
        queries = torch.full_like(queries, spec.window_span - 1)
    return queries, keys


def _band(spec: Spec, knobs: StepKnobs, local: bool, past: int, columns: int, span: int | None) -> Tensor:
    """bool [T, S]: causal, and among the last `span` keys."""
    cached = past > 0
    key = torch.arange(past + columns)[None, :]
    row = torch.arange(columns)[:, None]
    distance = past + row - key
    reach = distance
    kept = torch.ones_like(key, dtype=torch.bool)
    if cached and knobs.anchor != "end":
        evicted = _evicted(spec, local, past)
        from_start = row - (key - evicted)
        if knobs.anchor == "start":
            reach, kept, span = from_start, key >= evicted, None
        elif columns > 1:
            reach, kept, distance = from_start, key >= evicted, from_start
    match knobs.causal:
        case "causal":
            band = kept & (reach >= 0)
        case "one ahead":
            band = kept & (reach >= -1)
        case "none":
            band = kept.expand(reach.shape)
    if span is not None:
        band = band & (distance < span)
    if cached and columns > 1 and knobs.past_seen != "by row":
        band = band.clone()
        match knobs.past_seen:
            case "as first row":
                band[:, :past] = band[:1, :past]
            case "as last row":
                band[:, :past] = band[-1:, :past]
            case "never":
                band[:, :past] = False
    return band


def _span(spec: Spec, knobs: StepKnobs, local: bool, past: int, columns: int, training: bool) -> int | None:
    """Tokens that a query sees, itself included; None without a window."""
    if not (local or knobs.global_window):
        return None
    if knobs.windowless_from is not None and columns >= knobs.windowless_from:
        return None
    if knobs.ring_slot != "right" and local and past and columns == 1:
        return None  # what the ring holds is all that there is to see
    if training and (knobs.training_skip is None or past + columns <= spec.window_span + knobs.training_skip):
        return None
    more = knobs.prefill_window
    if past:
        more = knobs.decode_window if columns == 1 else knobs.chunk_window
    return None if more is None else spec.window_span + more


def _held(spec: Spec, knobs: StepKnobs, log: Log, past: int, columns: int) -> Tensor:
    """bool [S]: does a local layer's cache still hold the key?"""
    index = torch.arange(past + columns)
    held = index >= log.lost
    if knobs.cache_short is not None and past:
        held = held & (index >= past - (spec.window_span - 1 - knobs.cache_short))
    if knobs.held_keys == "last span" or (knobs.held_keys == "last span in chunks" and past and columns > 1):
        held = held & (index >= past + columns - spec.window_span)
    if knobs.ring_slot != "right":
        late = past >= spec.window_span and columns == 1
        for place in range(past, past + columns):
            log.ring[(place + late) % spec.window_span] = place
        if columns == 1:
            held = held & torch.isin(index, torch.tensor(list(log.ring.values())))
    return held


def _own(knobs: StepKnobs, kind: str, segments: Tensor, past: int, training: bool) -> Tensor:
    """bool [B, T, S]: is the key in the query's segment, and no padding?"""
    places = {"seen", f"seen in {kind}", *(("seen when cached",) if past else ())}
    padding_seen = knobs.padding in places or (training and not knobs.training_padding)
    places = {"ignored", f"ignored in {kind}", *(("ignored when cached",) if past else ())}
    ignored = knobs.segments in places or (training and not knobs.training_segments)
    if knobs.rows == "first row's mask":
        segments = segments[:1].expand(len(segments), -1)
    padding = (segments < 0)[:, None, :]
    if ignored:
        segments = segments.clamp(max=0)
    own = segments[:, past:, None] == segments[:, None, :]
    return own | padding if padding_seen else own & ~padding
