from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4.reference import (
    PUBLIC_CASTS,
    Casts,
    forward,
    inverse_frequencies,
    keys_and_values,
    mlp,
    rms_norm,
    rotate,
    rotation,
    softcap,
    visible,
)
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.families.gemma4.weights import tiny_weights
from tests.families.gemma4 import loops
from tests.families.gemma4.sizes import GLOBAL_TYPE, LOCAL_TYPE, SPEC_31B, tiny, tiny_sharing

TOKENS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38)
LATE = 90
CAST_ORDERS = [
    PUBLIC_CASTS,
    Casts(wide_attention=True),
    Casts(wide_scores=True),
    Casts(wide_mlp=True),
    Casts(narrow_cap=True),
    Casts(wide_attention=True, wide_mlp=True, narrow_cap=True),
]
SPECS = {
    "all layers their own": tiny(rms_norm_eps=1e-5),
    "two layers share": tiny_sharing(),
    "one global layer shares": tiny(num_kv_shared_layers=1, num_key_value_heads=2),
    "half of the pairs turn": tiny(partial_rotary_factor=0.5, global_head_dim=32, window_size=3),
}


def weights_of(spec: Gemma4Spec, dtype: torch.dtype = torch.float64, seed: int = 1) -> dict[str, Tensor]:
    return {name: torch.from_numpy(w).to(dtype) for name, w in tiny_weights(spec, seed).items()}


def logits(
    spec: Gemma4Spec,
    tokens: list[tuple[int, ...]],
    *,
    positions: list[list[int]] | None = None,
    segments: list[list[int]] | None = None,
    weights: dict[str, Tensor] | None = None,
    dtype: torch.dtype = torch.float64,
    casts: Casts = PUBLIC_CASTS,
) -> Tensor:
    """[B, T, V] of the oracle."""
    width = len(tokens[0])
    return forward(
        spec,
        weights or weights_of(spec, dtype),
        torch.tensor(tokens),
        torch.tensor(positions or [list(range(width))] * len(tokens)),
        torch.tensor(segments or [[0] * width] * len(tokens)),
        casts,
    )


def distance(left: Tensor, right: Tensor) -> float:
    return float((left.double() - right.double()).abs().max())


def swapped(tokens: tuple[int, ...], place: int) -> tuple[int, ...]:
    """The same tokens but for one."""
    return (*tokens[:place], 50, *tokens[place + 1 :])


@pytest.mark.parametrize("name", SPECS)
def test_the_oracle_computes_what_loops_over_heads_and_positions_compute(name: str) -> None:
    spec = SPECS[name]
    arrays = {key: w.astype(np.float64) for key, w in tiny_weights(spec, 1).items()}
    positions, segments = list(range(LATE, LATE + 9)), [0] * 9
    slow = loops.forward(spec, arrays, TOKENS[:9], positions, segments)
    fast = logits(spec, [TOKENS[:9]], positions=[positions])[0].numpy()
    assert np.abs(slow).max() > 5
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-10)


def test_the_oracle_computes_what_loops_compute_for_a_packed_row() -> None:
    spec = tiny_sharing()
    arrays = {key: w.astype(np.float64) for key, w in tiny_weights(spec, 1).items()}
    positions, segments = [0, 1, 2, 0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1, 1, 1, 1]
    slow = loops.forward(spec, arrays, TOKENS[:9], positions, segments)
    fast = logits(spec, [TOKENS[:9]], positions=[positions], segments=[segments])[0].numpy()
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-10)


def test_a_norm_multiplies_by_its_gain_and_nothing_else() -> None:
    x, w = torch.linspace(-2, 3, 10).double(), torch.linspace(-1, 1, 10).double()
    expected = loops.norm(w.numpy(), x.numpy(), 1e-6)
    np.testing.assert_allclose(rms_norm(x, w, 1e-6), expected, rtol=1e-14)
    np.testing.assert_allclose(rms_norm(x, None, 1e-6), loops.norm(None, x.numpy(), 1e-6), rtol=1e-14)


def test_eps_stands_under_the_root() -> None:
    x = torch.full((4,), 1e-3, dtype=torch.float64)
    np.testing.assert_allclose(rms_norm(x, None, 1e-6), 1e-3 / math.sqrt(1e-6 + 1e-6), rtol=1e-14)


def test_a_norm_in_bf16_is_cast_once_after_the_gain() -> None:
    x, w = torch.linspace(-2, 3, 50).bfloat16(), torch.linspace(0.5, 1.5, 50).bfloat16()
    unit = x.float() / torch.sqrt(x.float().pow(2).mean() + 1e-6)
    assert torch.equal(rms_norm(x, w, 1e-6), (unit * w.float()).bfloat16())
    assert not torch.equal(rms_norm(x, w, 1e-6), unit.bfloat16() * w)


def test_the_gate_goes_through_gelu_and_up_does_not() -> None:
    block = {
        "mlp.gate_proj.weight": torch.tensor([[1.0], [-2.0]], dtype=torch.float64),
        "mlp.up_proj.weight": torch.tensor([[10.0], [20.0]], dtype=torch.float64),
        "mlp.down_proj.weight": torch.eye(2, dtype=torch.float64),
    }
    got = mlp(block, torch.ones(1, 1, dtype=torch.float64), PUBLIC_CASTS)
    np.testing.assert_allclose(got[0], loops.gelu(np.array([1.0, -2.0])) * [10, 20], rtol=1e-13)


def test_the_embedding_factor_is_rounded_to_bf16_first() -> None:
    assert float(torch.tensor(math.sqrt(SPEC_31B.hidden_size)).bfloat16()) == 73.5
    spec = tiny()
    weights = {name: w.zero_() for name, w in weights_of(spec, torch.bfloat16).items()}
    weights["model.embed_tokens.weight"][:, :2] = torch.tensor([1.0, 0.5])
    weights["model.norm.weight"] += 1
    # With a large eps the final norm keeps the size of the stream.
    one = tiny(rms_norm_eps=1e9, final_logit_softcapping=1e9)
    for name in weights:
        if name.endswith("layer_scalar"):
            weights[name] += 1
    got = forward(one, weights, torch.tensor([[3]]), torch.tensor([[0]]), torch.tensor([[0]]))
    assert float(torch.tensor(math.sqrt(48)).bfloat16()) == 6.9375
    stream = torch.tensor([6.9375, 6.9375 / 2])
    hidden = (stream / math.sqrt(1e9)).bfloat16()
    assert float(got[0, 0, 0]) == float((hidden @ torch.tensor([1.0, 0.5]).bfloat16()).bfloat16())


def test_a_quarter_of_the_pairs_of_a_global_head_turns_with_the_exponents_of_the_whole_head() -> None:
    f = inverse_frequencies(SPEC_31B, GLOBAL)
    assert len(f) == 256
    np.testing.assert_allclose(f[:64], [1e6 ** (-2 * j / 512) for j in range(64)], rtol=1e-14)
    assert not f[64:].any()
    np.testing.assert_allclose(
        inverse_frequencies(SPEC_31B, LOCAL), [1e4 ** (-2 * j / 256) for j in range(128)], rtol=1e-14
    )


@pytest.mark.parametrize("kind", [LOCAL, GLOBAL])
def test_split_halves_turn_as_complex_numbers(kind: str) -> None:
    spec = tiny()
    _, d = spec.heads(kind)
    x = torch.linspace(-1, 2, 2 * d).double().view(1, 2, 1, d)
    cos, sin = rotation(spec, kind, torch.tensor([[0, 173]]), torch.float64)
    got = rotate(x, cos, sin, PUBLIC_CASTS)
    turns = loops.frequencies(spec, kind == GLOBAL)
    for place, position in enumerate((0, 173)):
        expected = loops.rotate(x[0, place, 0].numpy(), position, turns)
        np.testing.assert_allclose(got[0, place, 0], expected, rtol=0, atol=1e-12)


def test_components_0_to_63_and_256_to_319_of_31b_turn() -> None:
    x = torch.ones(1, 1, 1, 512, dtype=torch.float64)
    cos, sin = rotation(SPEC_31B, GLOBAL, torch.tensor([[7]]), torch.float64)
    moved = torch.nonzero(rotate(x, cos, sin, PUBLIC_CASTS)[0, 0, 0] != 1).flatten().tolist()
    assert moved == [*range(64), *range(256, 320)]


def test_v_of_a_global_layer_is_its_projected_k_before_norm_and_rope() -> None:
    spec = tiny()
    x = torch.linspace(-1, 1, 5 * spec.hidden_size).double().sin().view(1, 5, -1)
    for layer, kind in enumerate(spec.layer_kinds[:2]):
        prefix = f"model.layers.{layer}."
        block = {k.removeprefix(prefix): w for k, w in weights_of(spec).items() if k.startswith(prefix)}
        cos, sin = rotation(spec, kind, torch.arange(5)[None], torch.float64)
        _, v = keys_and_values(spec, kind, block, x, cos, sin, PUBLIC_CASTS)
        source = block[f"self_attn.{'k' if kind == GLOBAL else 'v'}_proj.weight"]
        kv_heads, d = spec.heads(kind)
        assert distance(v, rms_norm((x @ source.T).view(1, 5, kv_heads, d), None, 1e-6)) == 0


def test_layers_that_share_ignore_k_and_v_that_they_may_have() -> None:
    spec = tiny_sharing()
    weights = weights_of(spec)
    more = weights | {
        name: w * 7
        for name, w in weights_of(tiny()).items()
        if name not in weights and name.startswith("model.layers.")
    }
    assert len(more) == len(weights) + 5
    assert torch.equal(logits(spec, [TOKENS], weights=more), logits(spec, [TOKENS], weights=weights))


def test_sharing_changes_the_function() -> None:
    weights = weights_of(tiny())
    shared, own = (logits(spec, [TOKENS], weights=weights) for spec in (tiny_sharing(), tiny()))
    assert distance(shared, own) > 0.1


@pytest.mark.parametrize("layer", range(3))
def test_a_layer_scalar_multiplies_the_whole_stream(layer: int) -> None:
    # The next layer's norm undoes it, but what the next layers add weighs less then.
    spec = tiny()
    weights = weights_of(spec)
    name = f"model.layers.{layer}.layer_scalar"
    base = logits(spec, [TOKENS], weights=weights)
    weights[name] = torch.full((1,), 1e9, dtype=torch.float64)
    alone = logits(spec, [TOKENS], weights=weights)
    later = {
        key: w * 0
        if key.endswith("post_attention_layernorm.weight") and int(key.split(".")[2]) > layer
        else w
        for key, w in weights.items()
    }
    later = {
        key: w * 0
        if key.endswith("post_feedforward_layernorm.weight") and int(key.split(".")[2]) > layer
        else w
        for key, w in later.items()
    }
    assert distance(alone, base) > 0.1
    assert distance(alone, logits(spec, [TOKENS], weights=later)) < 1e-6


def test_the_softcap_bends_every_logit() -> None:
    x = torch.tensor([-90.0, -3.0, 0.0, 15.0], dtype=torch.float64)
    expected = [30 * math.tanh(value / 30) for value in x.tolist()]
    np.testing.assert_allclose(softcap(x, 30.0, PUBLIC_CASTS), expected, rtol=1e-14)
    capped = tiny(final_logit_softcapping=30.0)
    weights = weights_of(capped)
    free = logits(tiny(final_logit_softcapping=1e9), [TOKENS], weights=weights)
    assert distance(logits(capped, [TOKENS], weights=weights), 30 * torch.tanh(free / 30)) < 1e-6


def test_a_softcap_in_bf16_is_rounded_once() -> None:
    x = torch.linspace(-40, 40, 101).bfloat16()
    wide = (30 * torch.tanh(x.double() / 30)).bfloat16()
    assert (softcap(x, 30.0, PUBLIC_CASTS) != wide).sum() <= 1  # FP32 before the cast may tip a tie
    assert (softcap(x, 30.0, Casts(narrow_cap=True)) != wide).sum() > 10


@pytest.mark.parametrize("span", [None, 1, 3, 4, 20])
def test_a_query_sees_what_a_triple_loop_lets_it_see(span: int | None) -> None:
    segments = [[0] * 8, [-1, -1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 2, 2, 2], [0, 0, 0, 0, 0, -1, -1, -1]]
    seen = visible(torch.tensor(segments), span)
    for row, query, key in itertools.product(range(4), range(8), range(8)):
        assert bool(seen[row, query, key]) == loops.sees(query, key, segments[row], span), (row, query, key)


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_a_later_token_moves_no_earlier_logit(spec: Gemma4Spec) -> None:
    base = logits(spec, [TOKENS])
    for place in range(1, len(TOKENS)):
        changed = logits(spec, [swapped(TOKENS, place)])
        assert torch.equal(changed[:, :place], base[:, :place])
        assert (changed[:, place] != base[:, place]).any()


def probe(*types: str) -> Gemma4Spec:
    return tiny(num_hidden_layers=len(types), layer_types=types)


def moves_the_last(spec: Gemma4Spec) -> list[bool]:
    """For every number of places before the last position: does another token there move its logits?"""
    base, last = logits(spec, [TOKENS])[0, -1], len(TOKENS) - 1
    return [
        bool((logits(spec, [swapped(TOKENS, last - back)])[0, -1] != base).any()) for back in range(last + 1)
    ]


def test_a_probe_of_a_local_layer_sees_w_tokens() -> None:
    assert moves_the_last(probe(LOCAL_TYPE, GLOBAL_TYPE)) == [True] * 4 + [False] * (len(TOKENS) - 4)


def test_a_probe_of_a_global_layer_sees_every_token() -> None:
    assert all(moves_the_last(probe(GLOBAL_TYPE)))


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_packed_segments_are_rows_alone(spec: Gemma4Spec) -> None:
    cut, width = 6, len(TOKENS)
    packed = logits(
        spec,
        [TOKENS],
        positions=[[*range(cut), *range(width - cut)]],
        segments=[[7] * cut + [8] * (width - cut)],
    )
    assert distance(packed[:, :cut], logits(spec, [TOKENS[:cut]])) < 1e-12
    assert distance(packed[:, cut:], logits(spec, [TOKENS[cut:]])) < 1e-12
    assert distance(packed, logits(spec, [TOKENS])) > 0.1


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_padding_is_finite_and_moves_nothing(spec: Gemma4Spec, side: str) -> None:
    alone = logits(spec, [TOKENS])
    pad, width = (50, 51, 52), len(TOKENS)
    if side == "left":
        tokens, marks = (*pad, *TOKENS), [-1] * 3 + [0] * width
        positions, real = [0, 0, 0, *range(width)], slice(3, None)
    else:
        tokens, marks = (*TOKENS, *pad), [0] * width + [-1] * 3
        positions, real = [*range(width), 0, 0, 0], slice(width)
    padded = logits(spec, [tokens], positions=[positions], segments=[marks])
    assert torch.isfinite(padded).all()
    assert distance(padded[:, real], alone) < 1e-12


@pytest.mark.parametrize("shift", [1, 1000, 100_000])
def test_a_constant_shift_of_positions_moves_nothing(shift: int) -> None:
    spec = tiny_sharing()
    moved = logits(spec, [TOKENS], positions=[list(range(shift, shift + len(TOKENS)))])
    assert distance(moved, logits(spec, [TOKENS])) < 1e-8


def test_a_stretch_of_positions_moves_the_logits() -> None:
    spec = tiny()
    stretched = logits(spec, [TOKENS], positions=[list(range(0, 2 * len(TOKENS), 2))])
    assert distance(stretched, logits(spec, [TOKENS])) > 0.1


def test_rows_of_a_batch_are_rows_alone() -> None:
    spec, other = tiny_sharing(), tuple(reversed(TOKENS))
    both = logits(spec, [TOKENS, other])
    assert distance(both[:1], logits(spec, [TOKENS])) < 1e-12
    assert distance(both[1:], logits(spec, [other])) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_logits_have_the_dtype_of_the_weights(dtype: torch.dtype) -> None:
    assert logits(tiny(), [TOKENS], dtype=dtype).dtype == dtype


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_every_order_of_casts_is_the_same_function(spec: Gemma4Spec) -> None:
    base = logits(spec, [TOKENS])
    for casts in CAST_ORDERS:
        assert distance(logits(spec, [TOKENS], casts=casts), base) < 1e-12, casts


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_bf16_tells_orders_of_casts_apart_and_all_are_close(spec: Gemma4Spec) -> None:
    exact = logits(spec, [TOKENS])
    rounded = [logits(spec, [TOKENS], dtype=torch.bfloat16, casts=casts) for casts in CAST_ORDERS]
    for left, right in itertools.combinations(rounded, 2):
        assert not torch.equal(left, right)
    # None is worse than the others: each is a correct evaluation.
    distances = [distance(run, exact) for run in rounded]
    assert max(distances) < 4 * min(distances) < 0.4 * float(exact.abs().max())


@pytest.mark.parametrize("spec", [tiny(), tiny_sharing()])
def test_fp32_is_within_rounding_of_fp64(spec: Gemma4Spec) -> None:
    exact = logits(spec, [TOKENS])
    assert 0 < distance(logits(spec, [TOKENS], dtype=torch.float32), exact) < 1e-5 * float(exact.abs().max())
