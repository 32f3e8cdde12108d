"""The Gemma 4 family: everything that generic code asks of it, in one record."""

from __future__ import annotations

from typing import Any

from conformance.families.base import Family, FamilyBackend, Release
from conformance.families.gemma4.goldens import GOLDEN_MODELS
from conformance.families.gemma4.layouts import layouts
from conformance.families.gemma4.parameters import parameter_table
from conformance.families.gemma4.published import PUBLISHED
from conformance.families.gemma4.spec import MODEL_TYPES, RELEASES, Gemma4Spec
from conformance.families.gemma4.weights import tiny_weights

__all__ = ["FAMILY"]


def _specs(*args: Any, **kwargs: Any) -> Any:
    from conformance.families.gemma4.strategies import specs

    return specs(*args, **kwargs)


def _transformers(attention: str) -> FamilyBackend:
    return FamilyBackend(
        name=f"gemma4-{attention}",
        title=f"Transformers' own Gemma 4, {attention} attention",
        releases=RELEASES,
        environment="transformers-5",
        adapter="conformance.backends.transformers.adapter:TransformersAdapter",
        options={"attention": attention, "remote_code": False},
    )


FAMILY = Family(
    name="gemma4",
    model_types=MODEL_TYPES,
    releases=(
        Release(
            name="gemma-4",
            repository="google/gemma-4-31B",
            revision="5bbc2fb1c1b2c611d06e3d9f23c170ba21659d89",
            code_files=(),
        ),
    ),
    spec_from_config=Gemma4Spec.from_config,
    parameters=parameter_table,  # type: ignore[arg-type]
    weights=tiny_weights,  # type: ignore[arg-type]
    specs=_specs,
    reference="conformance.families.gemma4.reference",
    symmetries="conformance.families.gemma4.symmetries",
    orders={
        # FP32 rounds at every sum, so the order of sums decides; BF16 rounds where it is cast.
        "float32": ("relabel:1", "relabel:2", "relabel:3", "relabel:4"),
        "bfloat16": (
            "relabel:1",
            "casts:wide_scores",
            "casts:wide_attention",
            "casts:wide_mlp,narrow_cap",
            "casts:wide_scores,wide_mlp",
        ),
        "float64": (),
    },
    claims=dict.fromkeys(("vllm", "mlx", "llama-cpp"), RELEASES),
    gguf="conformance.families.gemma4.gguf",
    published=PUBLISHED,
    golden_models=GOLDEN_MODELS,
    layouts=layouts,  # type: ignore[arg-type]
    backends=(_transformers("eager"), _transformers("sdpa")),
)
