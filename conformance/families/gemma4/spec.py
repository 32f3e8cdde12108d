"""Gemma 4 configurations: validation, and config.json of the text decoder (docs/gemma4.md §1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL, Spec
from conformance.families.checks import is_number, require_positive, require_size

__all__ = ["MODEL_TYPES", "RELEASES", "Gemma4Spec", "default_layer_types"]

RELEASES = ("gemma-4",)
# Of the text decoder alone, which is what we write, and of a whole model, of which we read `text_config`.
MODEL_TYPES = ("gemma4_text", "gemma4")

_KINDS = {"sliding_attention": LOCAL, "full_attention": GLOBAL}
# Fields that config.json calls otherwise.
_KEYS = {"window_size": "sliding_window"}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_global_key_value_heads",
    "head_dim",
    "global_head_dim",
    "window_size",
    "max_position_embeddings",
)
_POSITIVE = ("final_logit_softcapping", "rms_norm_eps", "rope_local_theta", "rope_theta")
_ROPE_FIELDS = ("rope_local_theta", "rope_theta", "partial_rotary_factor")
# What a config.json may leave out, and the value that the library's configuration class then takes.
_OPTIONAL: Mapping[str, Any] = {"rms_norm_eps": 1e-6, "num_kv_shared_layers": 0}
# Keys that this decoder has at one value alone: that value, and what a missing key means to the library.
_FIXED: Mapping[str, tuple[Any, Any, str]] = {
    "attention_k_eq_v": (True, False, "true: V of global layers starts from k_proj"),
    "hidden_size_per_layer_input": (0, 256, "0: per-layer embeddings are not covered"),
    "hidden_activation": ("gelu_pytorch_tanh", "gelu_pytorch_tanh", "'gelu_pytorch_tanh'"),
    "tie_word_embeddings": (True, True, "true: the head is the embedding"),
    "attention_bias": (False, False, "false: projections have no bias"),
    "attention_dropout": (0.0, 0.0, "0: dropout is not covered"),
    "enable_moe_block": (False, False, "false: mixtures of experts are not covered"),
    "use_double_wide_mlp": (False, False, "false: double-wide MLPs are not covered"),
}


def default_layer_types(layers: int) -> tuple[str, ...]:
    """What a missing `layer_types` means: every sixth layer is global, and the last."""
    return tuple(
        "full_attention" if (i + 1) % 6 == 0 or i + 1 == layers else "sliding_attention"
        for i in range(layers)
    )


@dataclass(frozen=True, kw_only=True)
class Gemma4Spec(Spec):
    """One configuration of the dense text decoder (docs/gemma4.md §1).

    Field names are the keys of config.json, except `window_size` (`sliding_window`) and the three
    fields of RoPE, which config.json has under `rope_parameters`.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    num_global_key_value_heads: int
    head_dim: int
    global_head_dim: int
    window_size: int
    max_position_embeddings: int
    layer_types: tuple[str, ...]
    final_logit_softcapping: float
    rms_norm_eps: float = 1e-6
    rope_local_theta: float = 10_000.0
    rope_theta: float = 1_000_000.0
    partial_rotary_factor: float = 0.25
    num_kv_shared_layers: int = 0

    family: ClassVar[str] = "gemma4"

    def __post_init__(self) -> None:
        for name in _SIZES:
            require_size(_KEYS.get(name, name), getattr(self, name))
        for name in _POSITIVE:
            require_positive(name, getattr(self, name))
        if not is_number(self.partial_rotary_factor) or not 0 < self.partial_rotary_factor <= 1:
            raise BadInput.value("partial_rotary_factor", self.partial_rotary_factor, "above 0, at most 1")
        for name in ("num_key_value_heads", "num_global_key_value_heads"):
            if self.num_attention_heads % getattr(self, name):
                raise BadInput.value(
                    "num_attention_heads",
                    self.num_attention_heads,
                    f"a multiple of {name} ({getattr(self, name)})",
                )
        for name in ("head_dim", "global_head_dim"):
            if getattr(self, name) % 2:
                raise BadInput.value(name, getattr(self, name), f"even: RoPE rotates pairs (j, j + {name}/2)")
        _check_layer_types(self.layer_types, self.num_hidden_layers)
        object.__setattr__(self, "layer_types", tuple(self.layer_types))
        _check_sharing(self.layer_types, self.num_kv_shared_layers)
        # One form for one configuration: config.json may say 30 or 30.0, and generated weights are named
        # by the spec.
        for name in (*_POSITIVE, "partial_rotary_factor"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def release(self) -> str:
        """The release that this configuration belongs to; there is one."""
        return RELEASES[0]

    @property
    def window_span(self) -> int:
        """Tokens that a query of a local layer attends, itself included (docs/gemma4.md §3)."""
        return self.window_size

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """`local` or `global` for every layer."""
        return tuple(_KINDS[name] for name in self.layer_types)

    @property
    def kv_layers(self) -> tuple[int, ...]:
        """For every layer, the layer whose keys and values it attends (docs/gemma4.md §7).

        Its own, or for the last `num_kv_shared_layers` layers those of the last layer of the same kind
        before them.
        """
        own = self.num_hidden_layers - self.num_kv_shared_layers
        last = {kind: layer for layer, kind in enumerate(self.layer_kinds[:own])}
        return tuple(layer if layer < own else last[kind] for layer, kind in enumerate(self.layer_kinds))

    @property
    def probes(self) -> str | None:
        """The kind of the one layer that mixes tokens, in a model made to look at that layer alone.

        The last layer is always global, so a probe of a local layer has a global one behind it, which
        generated weights keep from mixing anything (`weights`).
        """
        return {(LOCAL, GLOBAL): LOCAL, (GLOBAL,): GLOBAL}.get(self.layer_kinds)

    @property
    def rotated_pairs(self) -> int:
        """Pairs of a global layer's head that RoPE rotates; the others pass (docs/gemma4.md §4)."""
        return int(self.partial_rotary_factor * self.global_head_dim / 2)

    def heads(self, kind: str) -> tuple[int, int]:
        """Key/value heads and head size of the layers of one kind."""
        if kind == GLOBAL:
            return self.num_global_key_value_heads, self.global_head_dim
        return self.num_key_value_heads, self.head_dim

    def describe(self) -> str:
        """The spec in a few words, for reports."""
        pattern = "".join(kind[0] for kind in self.layer_kinds)
        shared = f", {self.num_kv_shared_layers} sharing K/V" if self.num_kv_shared_layers else ""
        return (
            f"{self.release}: {self.num_hidden_layers} layers {pattern}{shared}, D {self.hidden_size}, heads "
            f"{self.num_attention_heads}/{self.num_key_value_heads} of {self.head_dim} and "
            f"{self.num_attention_heads}/{self.num_global_key_value_heads} of {self.global_head_dim}, "
            f"F {self.intermediate_size}, W {self.window_size}, V {self.vocab_size}"
        )

    def to_config(self, *, omit_defaults: bool = False) -> dict[str, Any]:
        """The architecture keys of the text decoder's config.json.

        With `omit_defaults`, keys that hold what the library takes for a missing one are left out.
        """
        config: dict[str, Any] = {"architectures": ["Gemma4ForCausalLM"], "model_type": MODEL_TYPES[0]}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _ROPE_FIELDS:
                continue
            if omit_defaults and field.name in _OPTIONAL and value == _OPTIONAL[field.name]:
                continue
            config[_KEYS.get(field.name, field.name)] = value
        config["layer_types"] = list(self.layer_types)
        config["rope_parameters"] = self._rope_parameters()
        for key, (value, missing, _) in _FIXED.items():
            if not (omit_defaults and value == missing):
                config[key] = value
        if omit_defaults:
            if self.layer_types == default_layer_types(self.num_hidden_layers):
                del config["layer_types"]
            if (self.rope_local_theta, self.rope_theta, self.partial_rotary_factor) == (1e4, 1e6, 0.25):
                del config["rope_parameters"]
        return config

    def to_dict(self) -> dict[str, Any]:
        """What `from_config` reads back, for bundles and manifests, and `window_size`, which limits go by."""
        return {**self.to_config(), "window_size": self.window_size}

    def _rope_parameters(self) -> dict[str, Any]:
        return {
            "sliding_attention": {"rope_type": "default", "rope_theta": self.rope_local_theta},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.partial_rotary_factor,
            },
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str | None = None) -> Gemma4Spec:
        """Read config.json of the text decoder, or the text part of a whole model's.

        Keys that the decoder does not use are ignored; keys that would make it another one are refused.

        Raises:
            BadInput: a key is missing, wrong, or beyond what is covered; the message names the key.
        """
        try:
            if "text_config" in config:
                return cls._from_whole(config)
            return cls._from_text(config)
        except BadInput as error:
            raise BadInput(f"{error} [{where}]" if where else str(error)) from None

    @classmethod
    def _from_whole(cls, config: Mapping[str, Any]) -> Gemma4Spec:
        text = config["text_config"]
        if not isinstance(text, dict):
            raise BadInput.value("text_config", text, "an object")
        if config.get("tie_word_embeddings", True) is not True:
            raise BadInput.value("tie_word_embeddings", config["tie_word_embeddings"], "true")
        return cls._from_text(text)

    @classmethod
    def _from_text(cls, config: Mapping[str, Any]) -> Gemma4Spec:
        for key, (only, missing, want) in _FIXED.items():
            if key not in config and only != missing:
                raise BadInput(f"{key} is missing, which means {missing!r}, but should be {want}")
            if config.get(key, missing) != only:
                raise BadInput.value(key, config[key], want)
        # `vision` makes image tokens see each other; text stays causal.
        if config.get("use_bidirectional_attention") not in (None, "vision"):
            raise BadInput.value(
                "use_bidirectional_attention",
                config["use_bidirectional_attention"],
                "null or 'vision': attention in both directions is not covered",
            )
        values: dict[str, Any] = _rope_fields(config.get("rope_parameters"))
        for field in fields(cls):
            key = _KEYS.get(field.name, field.name)
            if field.name in _ROPE_FIELDS:
                continue
            if key in config and (key, config[key]) != ("layer_types", None):
                values[field.name] = config[key]
            elif field.name not in _OPTIONAL and key != "layer_types":
                raise BadInput(f"{key} is missing, but gemma4 needs it")
        if "layer_types" not in values:
            require_size("num_hidden_layers", values["num_hidden_layers"])
            values["layer_types"] = default_layer_types(values["num_hidden_layers"])
        return cls(**values)


def _rope_fields(given: object) -> dict[str, Any]:
    """The spec's fields of RoPE from `rope_parameters`; none where the key is missing."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadInput.value("rope_parameters", given, "an object with an entry for each layer type")
    found: dict[str, Any] = {}
    for layer_type, rope_type, theta in (
        ("sliding_attention", "default", "rope_local_theta"),
        ("full_attention", "proportional", "rope_theta"),
    ):
        entry = given.get(layer_type)
        place = f"rope_parameters.{layer_type}"
        if not isinstance(entry, dict):
            raise BadInput.value(place, entry, "an object")
        if entry.get("rope_type") != rope_type:
            raise BadInput.value(f"{place}.rope_type", entry.get("rope_type"), repr(rope_type))
        if entry.get("factor", 1.0) != 1:
            raise BadInput.value(f"{place}.factor", entry["factor"], "1: scaled RoPE is not covered")
        if "rope_theta" not in entry:
            raise BadInput(f"{place}.rope_theta is missing, but gemma4 needs it")
        found[theta] = entry["rope_theta"]
    # Missing from the entry, it means that every pair rotates.
    found["partial_rotary_factor"] = given["full_attention"].get("partial_rotary_factor", 1.0)
    return found


def _check_layer_types(names: object, layers: int) -> None:
    if not isinstance(names, list | tuple) or len(names) != layers:
        raise BadInput.value("layer_types", names, f"a list of num_hidden_layers ({layers}) names")
    for layer, name in enumerate(names):
        if name not in list(_KINDS):  # a list, for JSON has values that no dictionary can be asked for
            raise BadInput.value(f"layer_types[{layer}]", name, " or ".join(_KINDS))
    if names[-1] != "full_attention":
        raise BadInput.value(f"layer_types[{layers - 1}]", names[-1], "full_attention, as the last layer is")


def _check_sharing(names: tuple[str, ...], shared: object) -> None:
    own = len(names) - shared if isinstance(shared, int) and not isinstance(shared, bool) else -1
    if not 0 < own <= len(names):
        raise BadInput.value("num_kv_shared_layers", shared, f"a whole number from 0 to {len(names) - 1}")
    for name in names[own:]:
        if name not in names[:own]:
            raise BadInput.value(
                "num_kv_shared_layers", shared, f"fewer: no {name} layer is left to share the K/V of"
            )
