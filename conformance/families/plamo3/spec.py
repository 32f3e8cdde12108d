"""PLaMo 3 configurations: validation, and config.json of both releases (docs/plamo3.md §1, §2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from conformance.errors import BadInput
from conformance.families.base import GLOBAL, LOCAL, Spec
from conformance.families.checks import is_number, require_positive, require_size

__all__ = ["RELEASES", "Plamo3Spec"]

RELEASES = ("2604", "4k")

# What a config.json may leave out, and the value that the releases' configuration class then takes.
_OPTIONAL: Mapping[str, Any] = {
    "rms_norm_eps": 1e-6,
    "sliding_window_pattern": 8,
    "rope_local_theta": 10_000.0,
    "rope_theta": 1_000_000.0,
    "initial_context_length": 4096,
    "rope_scaling_factor": 1.0,
    "tie_word_embeddings": True,
    "scale_embedding": False,
}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
    "sliding_window_pattern",
    "initial_context_length",
    "max_position_embeddings",
)
_POSITIVE = ("rms_norm_eps", "rope_local_theta", "rope_theta")


@dataclass(frozen=True, kw_only=True)
class Plamo3Spec(Spec):
    """One PLaMo 3 configuration; field names are the keys of config.json (docs/plamo3.md §2).

    The release is not a field: the public config has no flag for it. A scaling factor of 1, or
    none, means 4k; anything larger means 2604 (docs/plamo3.md §1).
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    window_size: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    sliding_window_pattern: int = 8
    rope_local_theta: float = 10_000.0
    rope_theta: float = 1_000_000.0
    initial_context_length: int = 4096
    rope_scaling_factor: float = 1.0
    tie_word_embeddings: bool = True
    scale_embedding: bool = False

    family: ClassVar[str] = "plamo3"

    def __post_init__(self) -> None:
        for key in _SIZES:
            require_size(key, getattr(self, key))
        for key in _POSITIVE:
            require_positive(key, getattr(self, key))
        for key in ("tie_word_embeddings", "scale_embedding"):
            if not isinstance(getattr(self, key), bool):
                raise BadInput.value(key, getattr(self, key), "true or false")
        if self.scale_embedding:
            raise BadInput.value("scale_embedding", True, "false: neither release scales embeddings")
        if not is_number(self.rope_scaling_factor) or self.rope_scaling_factor < 1:
            raise BadInput.value("rope_scaling_factor", self.rope_scaling_factor, "a number, 1 or larger")
        if self.num_attention_heads % self.num_key_value_heads:
            raise BadInput.value(
                "num_attention_heads",
                self.num_attention_heads,
                f"a multiple of num_key_value_heads ({self.num_key_value_heads})",
            )
        if self.head_dim % 2:
            raise BadInput.value("head_dim", self.head_dim, "even: RoPE rotates pairs (j, j + head_dim/2)")
        # One form for one configuration: config.json may say 256 or 256.0, and generated weights are named
        # by the spec.
        for key in (*_POSITIVE, "rope_scaling_factor"):
            object.__setattr__(self, key, float(getattr(self, key)))

    @property
    def release(self) -> str:
        """The release that this configuration belongs to: ``2604`` or ``4k``."""
        return "2604" if self.rope_scaling_factor > 1 else "4k"

    @property
    def window_span(self) -> int:
        """Tokens that a query of a local layer attends, itself included (docs/plamo3.md §6)."""
        return self.window_size if self.release == "2604" else self.window_size + 1

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """`local` or `global` for every layer (docs/plamo3.md §4)."""
        return tuple(
            GLOBAL if (i + 1) % self.sliding_window_pattern == 0 else LOCAL
            for i in range(self.num_hidden_layers)
        )

    @property
    def groups(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def padded_vocab_size(self) -> int:
        """Rows of an untied head: the vocabulary rounded up to a multiple of 16 (docs/plamo3.md §3)."""
        return -(-self.vocab_size // 16) * 16

    def describe(self) -> str:
        """The spec in a few words, for reports."""
        head = "tied" if self.tie_word_embeddings else "untied"
        return (
            f"{self.release}: {self.num_hidden_layers} layers, D {self.hidden_size}, "
            f"heads {self.num_attention_heads}/{self.num_key_value_heads}, d {self.head_dim}, "
            f"F {self.intermediate_size}, W {self.window_size}, V {self.vocab_size}, {head}"
        )

    def to_config(self, *, omit_defaults: bool = False) -> dict[str, Any]:
        """The architecture keys of config.json, as the spec's release writes them.

        4k has no `rope_scaling_factor` and no `initial_context_length`: their absence is what tells
        it apart. With `omit_defaults`, optional keys that hold their default are left out as well.
        """
        config: dict[str, Any] = {"architectures": ["Plamo3ForCausalLM"], "model_type": self.family}
        for field in fields(self):
            value = getattr(self, field.name)
            if self.release == "4k" and field.name in ("rope_scaling_factor", "initial_context_length"):
                continue
            if omit_defaults and field.name in _OPTIONAL and value == _OPTIONAL[field.name]:
                continue
            config[field.name] = value
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str | None = None) -> Plamo3Spec:
        """Read the architecture keys of config.json; keys that the model does not use are ignored.

        A `rope_scaling_factor` of null counts as absent: so a class that has the key but no scaling
        writes it.

        Raises:
            BadInput: a required key is missing or a value is wrong; the message names the key.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name in config and (field.name, config[field.name]) != ("rope_scaling_factor", None):
                values[field.name] = config[field.name]
            elif field.name not in _OPTIONAL:
                place = f" [{where}]" if where else ""
                raise BadInput(f"{field.name} is missing, but plamo3 needs it{place}")
        try:
            return cls(**values)
        except BadInput as error:
            raise BadInput(f"{error} [{where}]" if where else str(error)) from None
