"""Strategies of tiny Gemma 4 specs: valid by derivation, asymmetric by default, small when shrunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.errors import BadInput
from conformance.families.gemma4.spec import RELEASES, Gemma4Spec
from conformance.limits import allowed, within

__all__ = ["specs"]

# Sizes that are no perfect squares; where one equals another, its double, or the width of all heads of a
# kind, the strategy leaves it out.
_HIDDEN = (48, 80, 96, 112)
_INNER = (56, 72, 88, 136)
_VOCABULARY = (121, 131, 150)
# Query heads, key/value heads of local and of global layers: at least two of each, and never as many as
# query heads share one, so that repeat and tile cannot be confused.
_HEADS = ((6, 3, 2), (8, 4, 2), (12, 4, 3), (12, 2, 3))
_HEAD_DIMS = (16, 24, 32)
_GLOBAL_HEAD_DIMS = (24, 32, 48, 64)
# The first is what a missing key means, so the second shows whether the key is read.
_LOCAL_THETAS = (10_000.0, 4_000.0)


@st.composite
def specs(
    draw: st.DrawFn,
    release: str,
    limits: Mapping[str, Mapping[str, Any]],
    *,
    layers: str = "mixed",
) -> Gemma4Spec:
    """Tiny specs within a backend's limits.

    Both kinds of layers with heads of their own sizes, a window of a few tokens, thetas 100 times apart,
    and in about half of the models layers that share keys and values.

    Args:
        draw: given by hypothesis.
        release: `gemma-4`.
        limits: the backend's limits (`conformance.limits`).
        layers: `mixed`, or `local` or `global` for models in which one layer of that kind mixes tokens.
    """
    assert release in RELEASES

    def size(field: str, candidates: tuple[int, ...]) -> int:
        return draw(st.sampled_from(allowed(field, candidates, limits)), label=field)

    heads, kv_heads, global_kv_heads = draw(st.sampled_from(_heads_within(limits)), label="heads")
    head_dim = size("head_dim", _HEAD_DIMS)
    global_head_dim = size("global_head_dim", tuple(d for d in _GLOBAL_HEAD_DIMS if d != head_dim))
    widths = {
        *(heads * d for d in (head_dim, global_head_dim)),
        kv_heads * head_dim,
        global_kv_heads * global_head_dim,
    }
    hidden = size("hidden_size", tuple(n for n in _HIDDEN if not {n, 2 * n} & widths))
    taken = {hidden, 2 * hidden, *widths}
    inner = size("intermediate_size", tuple(n for n in _INNER if not {n, 2 * n} & taken))
    kinds = {"local": "lg", "global": "g"}.get(layers) or _mixed(draw)
    shared = draw(_shared(kinds, limits)) if layers == "mixed" else 0
    local_theta = draw(st.sampled_from(_LOCAL_THETAS), label="rope_local_theta")
    return Gemma4Spec(
        vocab_size=size("vocab_size", _VOCABULARY),
        hidden_size=hidden,
        num_hidden_layers=len(kinds),
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        num_global_key_value_heads=global_kv_heads,
        head_dim=head_dim,
        global_head_dim=global_head_dim,
        window_size=size("window_size", (3, 4, 5, 6, 7)),
        max_position_embeddings=4096,
        layer_types=tuple("full_attention" if kind == "g" else "sliding_attention" for kind in kinds),
        final_logit_softcapping=draw(st.sampled_from([30.0, 25.0]), label="final_logit_softcapping"),
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5]), label="rms_norm_eps"),
        rope_local_theta=local_theta,
        rope_theta=100 * local_theta,
        partial_rotary_factor=draw(st.sampled_from([0.25, 0.5]), label="partial_rotary_factor"),
        num_kv_shared_layers=shared,
    )


def _mixed(draw: st.DrawFn) -> str:
    """The kinds of three to seven layers: every second to fourth is global, and the last."""
    pattern = draw(st.integers(2, 4), label="pattern")
    depth = draw(st.integers(pattern + 1, pattern + 3), label="num_hidden_layers")
    return "".join("g" if (i + 1) % pattern == 0 or i + 1 == depth else "l" for i in range(depth))


def _shared(kinds: str, limits: Mapping[str, Mapping[str, Any]]) -> st.SearchStrategy[int]:
    """How many of the last layers share: none in half of the models."""
    # Every kind that shares needs a layer of its own to share with.
    possible = [n for n in range(len(kinds)) if set(kinds[len(kinds) - n :]) <= set(kinds[: len(kinds) - n])]
    none, *some = allowed("num_kv_shared_layers", possible, limits)
    return st.booleans().flatmap(lambda share: st.sampled_from(some if share and some else [none]))


def _heads_within(limits: Mapping[str, Mapping[str, Any]]) -> list[tuple[int, int, int]]:
    fields = ("num_attention_heads", "num_key_value_heads", "num_global_key_value_heads")
    kept = [
        heads
        for heads in _HEADS
        if all(within(count, limits.get(field, {})) for field, count in zip(fields, heads, strict=True))
    ]
    if not kept:
        bounds = {field: dict(limits[field]) for field in fields if field in limits}
        raise BadInput.value("limits", bounds, "met by at least one tiny model")
    return kept
