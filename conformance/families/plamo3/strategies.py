"""Strategies of tiny PLaMo 3 specs: valid by derivation, asymmetric by default, small when shrunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.families.plamo3.spec import Plamo3Spec
from conformance.limits import allowed

__all__ = ["specs"]

# Sizes that are no perfect squares; where one equals another, its double, or the width of all heads, the
# strategy leaves it out.
_HIDDEN = (48, 80, 96, 112)
_INNER = (56, 72, 88, 136)
_HEAD_DIMS = (16, 24, 32)
# By whether the head is tied. An untied head is padded to a multiple of 16 rows (docs/plamo3.md §3), which
# an engine may refuse to load; load/matrix tries that, so that a refusal does not hide everything else.
_VOCABULARY = {True: (120, 131, 150), False: (128, 208, 240)}
# Original lengths that put both ends of YaRN's ramp inside every head, at frequencies that turn within
# the first dozen positions.
_ORIGINAL_LENGTHS = (256, 512, 1024)
# max_position_embeddings / L0, as in 31B; no scaling factor below, so that one in the other's place shows.
_EXTENSION = 64
# The first is what a missing key means, so the second shows whether the key is read.
_LOCAL_THETAS = (10_000.0, 4_000.0)
_FACTORS = (4.0, 16.0, 256.0)


@st.composite
def specs(
    draw: st.DrawFn,
    release: str,
    limits: Mapping[str, Mapping[str, Any]],
    *,
    layers: str = "mixed",
) -> Plamo3Spec:
    """Tiny specs of one release within a backend's limits.

    At least two key/value heads and two query heads on each, both kinds of layers, a window of a few
    tokens, thetas 100 times apart, and a YaRN ramp that lies inside the head's frequencies.

    Args:
        draw: given by hypothesis.
        release: `2604` or `4k`.
        limits: the backend's limits (`conformance.limits`).
        layers: `mixed`, or `local` or `global` for models of one layer of that kind.
    """

    def size(field: str, candidates: tuple[int, ...]) -> int:
        return draw(st.sampled_from(allowed(field, candidates, limits)), label=field)

    kv_heads = size("num_key_value_heads", (2, 3))
    # Groups differ from the number of key/value heads, so that repeat and tile cannot be confused.
    groups = draw(st.sampled_from([n for n in (2, 3) if n != kv_heads] or [2]), label="groups")
    head_dim = size("head_dim", _HEAD_DIMS)
    heads = kv_heads * groups
    width = heads * head_dim
    hidden = size("hidden_size", tuple(n for n in _HIDDEN if width not in (n, 2 * n)))
    taken = {hidden, 2 * hidden, width}
    inner = size("intermediate_size", tuple(n for n in _INNER if not {n, 2 * n} & taken))
    if layers == "mixed":
        pattern = draw(st.integers(2, 4), label="sliding_window_pattern")
        depth = draw(st.integers(pattern, pattern + 3), label="num_hidden_layers")
    else:
        pattern, depth = (2, 1) if layers == "local" else (1, 1)
    tied = not draw(st.booleans(), label="untied")
    local_theta = draw(st.sampled_from(_LOCAL_THETAS), label="rope_local_theta")
    lengths: dict[str, Any] = {"max_position_embeddings": 4096}
    if release == "2604":
        original = draw(st.sampled_from(_ORIGINAL_LENGTHS), label="initial_context_length")
        lengths = {
            "initial_context_length": original,
            "max_position_embeddings": _EXTENSION * original,
            "rope_scaling_factor": draw(st.sampled_from(_FACTORS), label="rope_scaling_factor"),
        }
    return Plamo3Spec(
        vocab_size=size("vocab_size", _VOCABULARY[tied]),
        hidden_size=hidden,
        num_hidden_layers=depth,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        window_size=size("window_size", (3, 4, 5, 6, 7)),
        sliding_window_pattern=pattern,
        rope_local_theta=local_theta,
        rope_theta=100 * local_theta,
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5]), label="rms_norm_eps"),
        tie_word_embeddings=tied,
        **lengths,
    )
