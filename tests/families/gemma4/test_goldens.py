from __future__ import annotations

from conformance.families import family_of
from conformance.families.gemma4.goldens import GOLDEN_MODELS
from conformance.families.gemma4.published import PUBLISHED


def test_goldens_have_models_with_and_without_sharing() -> None:
    (models,) = GOLDEN_MODELS.values()
    assert {variant.name: variant.spec.to_dict()["num_kv_shared_layers"] for variant in models} == {
        "telling": 0,
        "sharing": 2,
    }
    assert list(GOLDEN_MODELS) == [release.name for release in family_of("gemma4").releases]


def test_nothing_was_published() -> None:
    assert PUBLISHED == {}
    assert family_of("gemma4").published is PUBLISHED
