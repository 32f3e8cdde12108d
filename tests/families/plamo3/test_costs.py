from __future__ import annotations

from pathlib import Path

import pytest

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.plamo3 import costs
from conformance.families.plamo3.parameters import count_elements
from tests.families.plamo3.sizes import SIZES, SPEC_31B, tiny

GIB, MIB, KIB = 2**30, 2**20, 2**10
CONTEXT = 4096
DOCUMENT = Path(__file__).parents[3] / "docs" / "plamo3.md"


def documented(size: str) -> list[str]:
    """The cells of a size's row in the table of docs/plamo3.md §2."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {size} |")]
    assert len(rows) == 1
    return [cell.strip() for cell in rows[0].strip("|").split("|")]


def scientific(value: int) -> str:
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


@pytest.mark.parametrize("size", SIZES)
def test_every_cell_of_the_table_of_sizes_follows_from_the_formulas(size: str) -> None:
    spec = SIZES[size]
    stored = (costs.kv_bytes_per_token(spec, kind) / KIB for kind in (LOCAL, GLOBAL, None))
    assert documented(size) == [
        size,
        scientific(count_elements(spec)),
        scientific(costs.embedding_elements(spec)),
        str(spec.hidden_size),
        str(spec.num_hidden_layers),
        str(spec.intermediate_size),
        str(spec.num_attention_heads),
        str(spec.num_key_value_heads),
        "yes" if spec.tie_word_embeddings else "no",
        f"{costs.decode_flops(spec, CONTEXT) / 1e9:.2f}",
        f"{100 * costs.attention_share(spec, CONTEXT):.2f} %",
        f"{costs.weight_bytes(spec) / GIB:.2f}",
        f"{costs.kv_read_bytes(spec, CONTEXT) / MIB:g}",
        ", ".join(f"{value:g}" for value in stored),
    ]


@pytest.mark.parametrize(
    ("context", "evicted", "whole"),
    [(4096, 576, 1), (32768, 1472, 8), (131072, 4544, 32), (262144, 8640, 64)],
)
def test_the_cache_of_31b_grows_by_its_global_layers_alone(context: int, evicted: int, whole: int) -> None:
    assert costs.cache_bytes(SPEC_31B, context) == evicted * MIB
    assert costs.cache_bytes(SPEC_31B, context, evict=False) == whole * GIB


def test_the_documented_cache_sizes_are_those() -> None:
    lines = DOCUMENT.read_text().splitlines()
    assert "| with eviction, MiB | 576 | 1472 | 4544 | 8640 |" in lines
    assert "| as if every layer were global, GiB | 1 | 8 | 32 | 64 |" in lines


def test_a_dense_mask_of_the_longest_context_takes_256_gib() -> None:
    assert costs.mask_bytes(262144, 262144) == 256 * GIB


def test_nothing_is_evicted_inside_the_window() -> None:
    spec = tiny(window_size=7)
    inside, beyond = costs.cache_bytes(spec, 7), costs.cache_bytes(spec, 8)
    assert inside == costs.cache_bytes(spec, 7, evict=False)
    assert beyond - inside == costs.kv_bytes_per_token(spec, GLOBAL)


def test_flops_count_every_product_of_a_small_model() -> None:
    spec = tiny(num_hidden_layers=1, sliding_window_pattern=1)
    context = 9
    products = (160 + 96) * 48 + 3 * 56 * 48 + 97 * 48  # qkv and o, the MLP, the head
    attention = 2 * 6 * context * 16  # scores and mixed values
    assert costs.decode_flops(spec, context) == 2 * (products + attention)
    assert costs.attention_share(spec, context) == attention / (products + attention)


def test_a_batch_multiplies_all_but_the_weights() -> None:
    spec = tiny()
    assert costs.decode_flops(spec, 9, batch=3) == 3 * costs.decode_flops(spec, 9)
    assert costs.kv_read_bytes(spec, 9, batch=3) == 3 * costs.kv_read_bytes(spec, 9)
