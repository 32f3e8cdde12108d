"""The PLaMo 3 family: everything that generic code asks of it, in one record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance.families.base import Family, FamilyBackend, Release
from conformance.families.plamo3.goldens import GOLDEN_MODELS
from conformance.families.plamo3.layouts import layouts
from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.published import PUBLISHED
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.families.plamo3.weights import tiny_weights

__all__ = ["FAMILY"]


def _specs(*args: Any, **kwargs: Any) -> Any:
    from conformance.families.plamo3.strategies import specs

    return specs(*args, **kwargs)


def _auto_map(release: str) -> dict[str, str]:
    return {
        "AutoConfig": "configuration_plamo.Plamo3Config",
        "AutoModelForCausalLM": f"modeling_plamo_{release}.Plamo3ForCausalLM",
    }


FAMILY = Family(
    name="plamo3",
    model_types=("plamo3",),
    releases=(
        Release(
            name="2604",
            repository="pfnet/plamo-3-nict-2604-31b-base",
            revision="e26c257e2175b05db69f01b52f4edf6fa4118f53",
            code_files=("modeling_plamo.py",),
        ),
        Release(
            name="4k",
            repository="pfnet/plamo-3-nict-31b-base",
            revision="9c1fa626",
            code_files=("modeling_plamo.py",),
        ),
    ),
    spec_from_config=Plamo3Spec.from_config,
    parameters=parameter_table,  # type: ignore[arg-type]
    weights=tiny_weights,  # type: ignore[arg-type]
    standin=Path(__file__).parent / "standin",
    auto_map={release: _auto_map(release) for release in ("2604", "4k")},
    specs=_specs,
    reference="conformance.families.plamo3.reference",
    symmetries="conformance.families.plamo3.symmetries",
    orders={
        # FP32 rounds at every sum, so the order of sums decides; BF16 rounds where it is cast.
        "float32": ("relabel:1", "relabel:2", "relabel:3", "relabel:4"),
        "bfloat16": (
            "relabel:1",
            "casts:fold_offset",
            "casts:gain_first",
            "casts:wide",
            "casts:gain_first,wide",
        ),
        "float64": (),
    },
    claims=dict.fromkeys(("vllm", "mlx", "llama-cpp"), ("2604", "4k")),
    gguf="conformance.families.plamo3.gguf",
    published=PUBLISHED,
    golden_models=GOLDEN_MODELS,
    layouts=layouts,  # type: ignore[arg-type]
    backends=(
        FamilyBackend(
            name="plamo3-2604",
            title="modeling_plamo 2604 on Transformers 5",
            releases=("2604",),
            environment="transformers-5",
            adapter="conformance.backends.transformers.adapter:TransformersAdapter",
            release_code="2604",
        ),
        FamilyBackend(
            name="plamo3-4k",
            title="modeling_plamo 4k on Transformers 4.57",
            releases=("4k",),
            environment="transformers-4",
            adapter="conformance.backends.transformers.adapter:TransformersAdapter",
            release_code="4k",
        ),
    ),
)
