from __future__ import annotations

from pathlib import Path

import pytest

from conformance.families.base import GLOBAL, LOCAL
from conformance.families.gemma4 import costs
from tests.families.gemma4.sizes import SPEC_31B, tiny, tiny_sharing

MIB, KIB = 2**20, 2**10
DOCUMENT = Path(__file__).parents[3] / "docs" / "gemma4.md"
CACHE = {4096: 1120, 32768: 3360, 131072: 11040, 262144: 21280}


def test_a_token_takes_16_kib_in_a_local_layer_and_8_in_a_global_one() -> None:
    assert costs.kv_bytes_per_token(SPEC_31B, LOCAL) == 16 * KIB
    assert costs.kv_bytes_per_token(SPEC_31B, GLOBAL) == 8 * KIB


@pytest.mark.parametrize("context", CACHE)
def test_the_cache_of_31b_grows_by_its_global_layers_alone(context: int) -> None:
    assert costs.cache_bytes(SPEC_31B, context) == CACHE[context] * MIB


def test_local_layers_stop_at_800_mib() -> None:
    assert 50 * 1024 * costs.kv_bytes_per_token(SPEC_31B, LOCAL) == 800 * MIB


def test_the_documented_cache_sizes_are_those() -> None:
    rows = [line.strip("|").split("|") for line in DOCUMENT.read_text().splitlines()]
    table = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert table["context"] == [str(context) for context in CACHE]
    assert table["cache, MiB"] == [str(size) for size in CACHE.values()]


def test_layers_that_share_keep_nothing() -> None:
    first_two = 4 * costs.kv_bytes_per_token(tiny(), LOCAL) + 9 * costs.kv_bytes_per_token(tiny(), GLOBAL)
    assert costs.cache_bytes(tiny_sharing(), 9) == first_two
    assert costs.cache_bytes(tiny(), 9) == 2 * first_two
