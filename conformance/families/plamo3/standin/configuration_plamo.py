"""Stand-in for PLaMo 3's configuration class, for both releases (docs/plamo3.md §1, §2).

Our own implementation of the documented behaviour, loaded as Transformers remote code
(docs/standins.md). Works on Transformers 4.57 and 5.
"""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

FULL, SLIDING = "full_attention", "sliding_attention"
BETA_FAST, BETA_SLOW = 32, 1
# Keys that a config.json may state although they follow from others, and the property that gives each.
DERIVED = {
    "layer_types": "layer_types",
    "interleaved_sliding_window": "interleaved_sliding_window",
    "sliding_window": "sliding_window",
    "rope_parameters": "rope_parameters",
    "rope_scaling": "rope_parameters",
}


class Plamo3Config(PretrainedConfig):
    """The keys of config.json, and what follows from them.

    Nothing derived is stored: `layer_types`, `interleaved_sliding_window`, `sliding_window` and
    `rope_parameters` are computed at every access, and a config.json that states one of them must
    agree with the keys it follows from.

    Raises:
        TypeError: a required key is missing.
        ValueError: a stated value contradicts the keys that it follows from, or asks for what neither
            release does.
    """

    model_type = "plamo3"
    # A model without its sizes has no meaning, so Transformers must not build a default instance.
    has_no_defaults_at_init = True
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_size: int,
        num_hidden_layers: int,
        intermediate_size: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        head_dim: int,
        window_size: int,
        max_position_embeddings: int,
        rms_norm_eps: float = 1e-6,
        sliding_window_pattern: int = 8,
        rope_local_theta: float = 10_000.0,
        rope_theta: float = 1_000_000.0,
        initial_context_length: int = 4096,
        rope_scaling_factor: float | None = None,
        scale_embedding: bool = False,
        tie_word_embeddings: bool = True,
        **kwargs: Any,
    ) -> None:
        if scale_embedding:
            raise ValueError("scale_embedding = True, but should be False: neither release scales embeddings")
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.intermediate_size = intermediate_size
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.window_size = window_size
        self.max_position_embeddings = max_position_embeddings
        self.rms_norm_eps = rms_norm_eps
        self.sliding_window_pattern = sliding_window_pattern
        self.rope_local_theta = rope_local_theta
        self.rope_theta = rope_theta
        self.initial_context_length = initial_context_length
        self.rope_scaling_factor = rope_scaling_factor
        self.scale_embedding = scale_embedding
        for key, name in DERIVED.items():
            stated, follows = kwargs.pop(key, None), getattr(self, name)
            if stated is not None and stated != follows:
                raise ValueError(f"{key} = {stated!r}, but should be {follows!r}, which the other keys give")
        # Last, because Transformers 5 reads the properties below while it initialises.
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    @property
    def layer_types(self) -> list[str]:
        """Transformers' name of every layer's kind (docs/plamo3.md §4)."""
        return [
            FULL if (layer + 1) % self.sliding_window_pattern == 0 else SLIDING
            for layer in range(self.num_hidden_layers)
        ]

    @property
    def interleaved_sliding_window(self) -> list[int | None]:
        """W for every local layer, None for every global one; the name that vLLM reads."""
        return [self.window_size if kind == SLIDING else None for kind in self.layer_types]

    @property
    def sliding_window(self) -> int:
        """W under the name that Transformers' caches read."""
        return self.window_size

    @property
    def rope_parameters(self) -> dict[str, dict[str, Any]]:
        """RoPE of each kind of layer: YaRN on global ones if the release scales (docs/plamo3.md §2, §5)."""
        full: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope_theta}
        if self.rope_scaling_factor is not None and self.rope_scaling_factor > 1:
            full.update(
                rope_type="yarn",
                factor=self.rope_scaling_factor,
                original_max_position_embeddings=self.initial_context_length,
                beta_fast=BETA_FAST,
                beta_slow=BETA_SLOW,
                truncate=False,
            )
        return {FULL: full, SLIDING: {"rope_type": "default", "rope_theta": self.rope_local_theta}}

    # Transformers 5 would assign its own reading of config.json's RoPE keys to `rope_parameters`; the
    # property is complete as it stands.

    def convert_rope_params_to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Leave the remaining keys of config.json as they are."""
        return kwargs

    def standardize_rope_params(self) -> None:
        """Nothing to do: `rope_parameters` is already in the form of Transformers 5."""
