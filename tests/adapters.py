"""The oracle broken by one thing each: what a judge of implementations must not let pass.

Every one of them is right apart from that. They are broken without touching the oracle: by a model whose
parameters or configuration make the oracle compute what such an implementation would. Used by class:
``--backend tests.adapters:WindowPlusOne``. Ways to be broken as a worker are in tests/toys.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.families.base import GLOBAL, LOCAL


class WindowPlusOne(ReferenceAdapter):
    """A local layer of 2604 sees W + 1 tokens: the convention of 4k."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({**options, "releases": ["2604"]})

    def prepare(self, checkpoint: Path) -> Any:
        model = super().prepare(checkpoint)
        return replace(model, spec=replace(model.spec, window_size=model.spec.window_size + 1))


class _Changed(ReferenceAdapter):
    """Changes the parameters of some layers."""

    def prepare(self, checkpoint: Path) -> Any:
        model = super().prepare(checkpoint)
        for layer, kind in enumerate(model.spec.layer_kinds):
            prefix = f"model.layers.layers.{layer}."
            block = {n.removeprefix(prefix): w for n, w in model.stored.items() if n.startswith(prefix)}
            model.stored.update({prefix + n: w for n, w in self.change(model.spec, kind, block).items()})
        return model

    def change(self, spec: Any, kind: str, block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Parameters of a block of this kind to put in the place of the stored ones."""
        raise NotImplementedError


class OffsetForgotten(_Changed):
    """post_mlp_norm multiplies by w instead of 5**-1.5 + w."""

    def change(self, spec: Any, kind: str, block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"post_mlp_norm.weight": block["post_mlp_norm.weight"] - 5**-1.5}


class GroupsTiled(_Changed):
    """Query head h takes key/value head h mod K instead of h div G: tile for repeat."""

    def change(self, spec: Any, kind: str, block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        groups, kv_heads, d = spec.groups, spec.num_key_value_heads, spec.head_dim
        # The place of head h among heads that are sorted by the key/value head they take.
        order = [kv_head + kv_heads * member for kv_head in range(kv_heads) for member in range(groups)]
        rows = torch.cat([torch.arange(head * d, (head + 1) * d) for head in order])
        qkv = block["mixer.qkv_proj.weight"]
        return {
            "mixer.qkv_proj.weight": torch.cat([qkv[rows], qkv[len(rows) :]]),
            "mixer.o_proj.weight": block["mixer.o_proj.weight"][:, rows],
        }


class AmplitudeDropped(_Changed):
    """YaRN stretches the frequencies, but cos and sin are not multiplied by 0.1·ln(s) + 1."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({**options, "releases": ["2604"]})

    def change(self, spec: Any, kind: str, block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if kind != GLOBAL:
            return {}
        amplitude = 0.1 * math.log(spec.rope_scaling_factor) + 1
        names = ("mixer.q_norm.weight", "mixer.k_norm.weight")
        return {name: (1 + block[name]) / amplitude - 1 for name in names}


class QueryNormSkippedLocally(_Changed):
    """Local layers multiply queries by 1 instead of by q_norm's gain."""

    def change(self, spec: Any, kind: str, block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return (
            {"mixer.q_norm.weight": torch.zeros_like(block["mixer.q_norm.weight"])} if kind == LOCAL else {}
        )


class Untouched(_Changed):
    """Goes through the same motions and changes nothing: it conforms."""

    def change(self, spec: Any, kind: str, block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(block)


class Plain(ReferenceAdapter):
    """The oracle, asked for no more than a plain engine can do: triage is quick."""

    capabilities = frozenset({"decode"})
    dtypes = ("float32",)


class PlainWindowPlusOne(Plain, WindowPlusOne):
    """The same with one token more in the window."""
