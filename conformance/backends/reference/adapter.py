"""The reference behind the worker protocol: the oracle of a family, and its evaluation orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from conformance.backends.reference import deviating
from conformance.checkpoints.store import read_spec
from conformance.families import FAMILIES, family_of
from conformance.families.base import Spec
from conformance.faults import combine, faults_of
from conformance.feeds import CAPABILITIES, Feed, Phase
from conformance.workers.adapter import Adapter

__all__ = ["ReferenceAdapter"]

# Arrangements of one model's weights kept ready; the oldest one goes first.
_KEPT_ARRANGEMENTS = 4
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@dataclass
class _Model:
    """One checkpoint: its spec, its stored weights, and weights already cast or relabelled.

    Attributes:
        arranged: faults → the same model with its weights as an implementation with them takes them;
            None where that is as they are stored.
    """

    spec: Spec
    stored: dict[str, Tensor]
    ready: dict[tuple[str, int], dict[str, Tensor]] = field(default_factory=dict)
    arranged: dict[tuple[str, ...], _Model | None] = field(default_factory=dict)


class ReferenceAdapter(Adapter):
    """Runs any feed from its meaning: each forward step is computed from the tokens of its context.

    Evaluation orders: ``relabel:N`` permutes channels (an exact symmetry), ``casts:NAME,…`` moves the
    roundings of low precision to where engines may have them. ``faults:ID,…`` is another function: what
    an implementation with these faults of the family's bank computes, from the feed itself, step by step;
    ``faults:ID,…;relabel:N`` is that with channels permuted, ``faults:ID,…;lean:up`` with what it rounds
    moved up by a little first.
    """

    capabilities = frozenset(CAPABILITIES)
    dtypes = ("float32", "bfloat16", "float64")
    orders = (
        "relabel:N",
        "casts:NAME,NAME",
        "faults:ID,ID",
        "faults:ID,ID;relabel:N",
        "faults:ID,ID;lean:up",
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        torch.set_num_threads(int(options.get("threads", 1)))
        torch.set_deterministic_debug_mode("error")
        torch.set_float32_matmul_precision("highest")
        releases = [release.name for name in FAMILIES for release in family_of(name).releases]
        self.releases = tuple(options.get("releases", releases))  # type: ignore[misc]

    def prepare(self, checkpoint: Path) -> _Model:
        stored: dict[str, Tensor] = {}
        for file in sorted(checkpoint.glob("*.safetensors")):
            stored.update(load_file(file))
        return _Model(read_spec(checkpoint), stored)

    def run(self, model: _Model, feed: Feed) -> np.ndarray:
        return self.run_in_order(model, feed, "relabel:0")

    def run_in_order(self, model: _Model, feed: Feed, order: str) -> np.ndarray:
        if order.startswith(deviating.PREFIX):
            return self._run_with_faults(model, feed, deviating.read_order(order))
        oracle = import_module(family_of(model.spec.family).reference)
        kind, _, argument = order.partition(":")
        relabelling = int(argument) if kind == "relabel" else 0
        casts = (
            oracle.Casts(**dict.fromkeys(argument.split(","), True)) if kind == "casts" else oracle.Casts()
        )
        weights = self._weights(model, feed.dtype, relabelling)
        wide = torch.float64 if feed.dtype == "float64" else torch.float32
        logits = torch.zeros(feed.batch, feed.width, model.spec.vocab_size, dtype=wide)
        with torch.inference_mode():
            for phase in feed.phases():
                tokens, positions, segments = _inputs(feed, phase)
                answer = oracle.forward(model.spec, weights, tokens, positions, segments, casts)
                logits[:, phase.start : phase.start + phase.columns] = answer[:, -phase.columns :].to(wide)
        return logits.numpy()

    def _run_with_faults(self, model: _Model, feed: Feed, order: deviating.Order) -> np.ndarray:
        family, faults = model.spec.family, order.faults
        found = deviating.named(family, faults)
        if faults not in model.arranged:
            while len(model.arranged) >= _KEPT_ARRANGEMENTS:
                model.arranged.pop(next(iter(model.arranged)))
            model.arranged[faults] = _arranged(model, faults_of(family).arrange, combine(found))
        arranged = model.arranged[faults]
        weights = self._weights(model if arranged is None else arranged, feed.dtype, order.relabelling)
        return np.asarray(deviating.run(model.spec, weights, feed, found, order.lean).numpy())

    def versions(self) -> dict[str, str]:
        return {name: metadata.version(name) for name in ("torch", "numpy", "safetensors")}

    def numerics(self) -> dict[str, Any]:
        return {
            "threads": torch.get_num_threads(),
            "device": "cpu",
            "matmul": "highest",
            "attention": "einsum, dense mask",
        }

    def _weights(self, model: _Model, dtype: str, relabelling: int) -> dict[str, Tensor]:
        key = (dtype, relabelling)
        if key not in model.ready:
            weights = model.stored
            if relabelling:
                symmetries = import_module(family_of(model.spec.family).symmetries)
                weights = symmetries.relabel(model.spec, weights, relabelling)
            model.ready[key] = {name: w.to(_DTYPES[dtype]) for name, w in weights.items()}
        return model.ready[key]


def _arranged(model: _Model, arrange: Callable[..., Mapping[str, Any]], changes: Any) -> _Model | None:
    stored = dict(arrange(model.spec, model.stored, changes))
    same = stored.keys() == model.stored.keys() and all(stored[n] is w for n, w in model.stored.items())
    return None if same else _Model(model.spec, stored)


def _inputs(feed: Feed, phase: Phase) -> tuple[Tensor, Tensor, Tensor]:
    """tokens, positions and segments [B, context + columns] of one forward step."""
    new = range(phase.start, phase.start + phase.columns)
    tokens, positions, segments = [], [], []
    for row, context in enumerate(phase.context):
        cells = [*context, *((row, column) for column in new)]
        real = [column in feed.real[source] for source, column in cells]
        first = real.index(True) if True in real else 0
        counted = [max(0, place - first) for place in range(len(cells))]
        tokens.append([feed.tokens[source][column] for source, column in cells])
        positions.append(
            counted
            if feed.positions is None
            else [feed.positions[source][column] for source, column in cells]
        )
        own = [0] * len(cells) if feed.segments is None else [feed.segments[s][c] for s, c in cells]
        segments.append([segment if here else -1 for segment, here in zip(own, real, strict=True)])
    return torch.tensor(tokens), torch.tensor(positions), torch.tensor(segments)
