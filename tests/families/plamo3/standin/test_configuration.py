"""The configuration class, in both environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.families.plamo3.spec import Plamo3Spec
from tests.backends.transformers.remote import Raised
from tests.families.plamo3.standin.conftest import Standin

pytest_plugins = ["tests.backends.transformers.engines"]

LOCAL = {"rope_type": "default", "rope_theta": 10_000.0}
PLAIN = {"rope_type": "default", "rope_theta": 1_000_000.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 512,
    "beta_fast": 32,
    "beta_slow": 1,
    "truncate": False,
}
GLOBAL = {"2604": YARN, "4k": PLAIN}


def test_what_follows_from_the_keys(standin: Standin) -> None:
    found = standin.ask("config")
    assert found["class"] == "Plamo3Config"
    assert found["layer_types"] == ["sliding_attention", "full_attention", "sliding_attention"]
    assert found["interleaved_sliding_window"] == [4, None, 4]
    assert found["sliding_window"] == 4
    assert found["rope_parameters"] == {
        "full_attention": GLOBAL[standin.release],
        "sliding_attention": LOCAL,
    }
    assert found["tie_word_embeddings"] is True


def test_it_agrees_with_the_spec(standin: Standin) -> None:
    kinds = {"sliding_attention": "local", "full_attention": "global"}
    found = standin.ask("config")
    assert tuple(kinds[kind] for kind in found["layer_types"]) == standin.spec.layer_kinds
    stated = {k: v for k, v in found["keys"].items() if v is not None or k != "rope_scaling_factor"}
    assert Plamo3Spec.from_config({**standin.spec.to_config(), **stated}) == standin.spec


def test_nothing_derived_is_stored(standin: Standin) -> None:
    """Else a stored value could outlive a change of the keys that it follows from."""
    stored = standin.ask("config")["stored"]
    assert set(stored) == set(standin.ask("config")["keys"])


def test_keys_that_are_left_out(standin: Standin) -> None:
    names = ("rms_norm_eps", "sliding_window_pattern", "rope_local_theta", "rope_theta", "scale_embedding")
    left_out: dict[str, Any] = dict.fromkeys((*names, "tie_word_embeddings"), "left out")
    path = standin.another(left_out, num_hidden_layers=9, sliding_window_pattern=8)
    found = standin.ask("config", directory=path)
    assert {name: found["keys"][name] for name in names} == {
        "rms_norm_eps": 1e-6,
        "sliding_window_pattern": 8,
        "rope_local_theta": 10_000.0,
        "rope_theta": 1_000_000.0,
        "scale_embedding": False,
    }
    assert found["tie_word_embeddings"] is True
    assert [i for i, kind in enumerate(found["layer_types"]) if kind == "full_attention"] == [7]


@pytest.mark.parametrize("factor", ["left out", None, 1, 1.0])
def test_no_factor_no_yarn(standin: Standin, factor: Any) -> None:
    """The only sign of the older release (docs/plamo3.md §1)."""
    path = standin.another({"rope_scaling_factor": factor, "of": str(factor)})
    assert standin.ask("config", directory=path)["rope_parameters"]["full_attention"] == PLAIN


def test_what_transformers_writes_reads_back_the_same(standin_of: Callable[[str], Standin]) -> None:
    """On Transformers 5; 4.57 cannot write a configuration without defaults."""
    standin = standin_of("2604")
    target = standin.models / "saved"
    before = standin.ask("config")
    after = standin.ask("saved_and_read", str(target))
    assert after == before


AGREEING = {
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "interleaved_sliding_window": [4, None, 4],
    "sliding_window": 4,
}


@pytest.mark.parametrize("key", AGREEING)
def test_derived_keys_may_be_stated(standin: Standin, key: str) -> None:
    path = standin.another({key: AGREEING[key]})
    assert standin.ask("config", directory=path) == standin.ask("config")


@pytest.mark.parametrize(
    ("key", "stated", "follows"),
    [
        ("sliding_window", 5, "4"),
        ("interleaved_sliding_window", [4, 4, 4], "[4, None, 4]"),
        (
            "layer_types",
            ["full_attention"] * 3,
            "['sliding_attention', 'full_attention', 'sliding_attention']",
        ),
        ("rope_parameters", {"rope_type": "default"}, "ROPE"),
        ("rope_scaling", {"rope_type": "linear", "factor": 8.0}, "ROPE"),
    ],
)
def test_a_contradiction_is_an_error(standin: Standin, key: str, stated: Any, follows: str) -> None:
    rope = {"full_attention": GLOBAL[standin.release], "sliding_attention": LOCAL}
    path = standin.another({key: stated, "contradicting": True})
    with pytest.raises(Raised) as caught:
        standin.ask("config", directory=path)
    assert str(caught.value) == (
        f"ValueError: {key} = {stated!r}, but should be {follows.replace('ROPE', repr(rope))}, "
        "which the other keys give"
    )


def test_a_scaled_embedding_is_an_error(standin: Standin) -> None:
    with pytest.raises(Raised) as caught:
        standin.ask("config", directory=standin.another({"scale_embedding": True}))
    assert str(caught.value) == (
        "ValueError: scale_embedding = True, but should be False: neither release scales embeddings"
    )


def test_a_missing_size_is_an_error(standin: Standin) -> None:
    """head_dim above all: a default of D / H would be wrong (docs/plamo3.md §2)."""
    with pytest.raises(Raised, match=r"^TypeError: .*missing 1 required keyword-only argument: 'head_dim'$"):
        standin.ask("config", directory=standin.another({"head_dim": "left out"}))
