"""What a Gemma 4 model must have for a fault to show, beyond what any model can have."""

from __future__ import annotations

from conformance.families.base import LOCAL
from conformance.families.gemma4.spec import Gemma4Spec, default_layer_types
from conformance.families.stepwise.conditions import of_spec
from conformance.faults import Condition

__all__ = [
    "NOT_EVERY_SIXTH",
    "ONE_STEP",
    "PARTIAL",
    "PARTIAL_LOCAL",
    "SHARING",
    "SHARING_MORE",
    "SHARING_OF_SEVERAL",
    "UNLIKE_GROUPS",
    "UNLIKE_HEADS",
]


def _partial_local(spec: Gemma4Spec) -> bool:
    turning = int(spec.partial_rotary_factor * spec.head_dim / 2)
    return LOCAL in spec.layer_kinds and turning < spec.head_dim // 2


def _sharing_more(spec: Gemma4Spec) -> bool:
    """Could one layer more share?"""
    own = spec.num_hidden_layers - spec.num_kv_shared_layers - 1
    kinds = spec.layer_kinds
    return spec.num_kv_shared_layers > 0 and set(kinds[own:]) <= set(kinds[:own])


def _sharing_of_several(spec: Gemma4Spec) -> bool:
    """Is there a layer that shares, and another one of its kind before the one that it takes from?"""
    return any(
        source != layer and spec.layer_kinds.index(spec.layer_kinds[layer]) != source
        for layer, source in enumerate(spec.kv_layers)
    )


PARTIAL = of_spec(
    "partial",
    "global layers of which some pairs do not turn",
    lambda spec: spec.rotated_pairs < spec.global_head_dim // 2,
)
PARTIAL_LOCAL = of_spec("partial, local layers", "local layers, and RoPE that turns a share", _partial_local)
UNLIKE_GROUPS = of_spec(
    "unlike K/V heads",
    "local and global layers with unlike numbers of key/value heads",
    lambda spec: spec.num_key_value_heads != spec.num_global_key_value_heads,
)
UNLIKE_HEADS = of_spec(
    "unlike head sizes",
    "local and global layers with unlike head sizes",
    lambda spec: spec.head_dim != spec.global_head_dim,
)
NOT_EVERY_SIXTH = of_spec(
    "not every sixth",
    "global layers other than every sixth and the last",
    lambda spec: spec.layer_types != default_layer_types(spec.num_hidden_layers),
)
SHARING = of_spec("sharing", "layers that share keys and values", lambda spec: spec.num_kv_shared_layers > 0)
SHARING_MORE = of_spec("sharing, and one could more", "sharing, and one more layer that could", _sharing_more)
SHARING_OF_SEVERAL = of_spec(
    "sharing, of several",
    "sharing, and more layers of one kind than one to take keys and values from",
    _sharing_of_several,
)
ONE_STEP = Condition("one step", "a feed of one forward step", lambda _, feed: len(feed.chunks) == 1)
