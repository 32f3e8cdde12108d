"""Which tokens a layer sees under faults of this family's patterns, found by changing one token at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.families.gemma4 import faults
from conformance.families.gemma4.spec import Gemma4Spec
from conformance.faults import combine, find
from conformance.feeds import Feed, Forward, Step
from tests.families.gemma4.faults.trials import spec_of
from tests.families.stepwise.trials import tokens_of, weights_of

LOCAL_LAYER = spec_of("lg")  # its global layer mixes nothing
GLOBAL_LAYER = spec_of("g")
WHOLE = (Forward(12),)
DECODE = (Forward(8), *[Forward(1)] * 4)
EVERYTHING = set(range(12))
WINDOW = {8, 9, 10, 11}


def seen(id: str, spec: Gemma4Spec, steps: tuple[Step, ...], row: int) -> set[int]:
    """The columns that the logits at column `row` depend on."""
    changes = combine([find(faults.FAULTS, id)] if id else [])
    weights = weights_of(spec, "float64")
    feed = Feed(tokens=tokens_of(spec, 1, 12), steps=steps, dtype="float64")
    base = faults.run(spec, weights, feed, changes)[0, row]
    found = set()
    for column, token in enumerate(feed.tokens[0]):
        changed = (*feed.tokens[0][:column], (token + 1) % spec.vocab_size, *feed.tokens[0][column + 1 :])
        if (faults.run(spec, weights, replace(feed, tokens=(changed,)), changes)[0, row] != base).any():
            found.add(column)
    return found


@pytest.mark.parametrize("steps", [WHOLE, DECODE], ids=["whole", "decode"])
@pytest.mark.parametrize(
    ("id", "spec", "want"),
    [
        ("", LOCAL_LAYER, WINDOW),
        ("", GLOBAL_LAYER, EVERYTHING),
        ("pattern-one-late", LOCAL_LAYER, EVERYTHING),
        ("pattern-one-early", LOCAL_LAYER, EVERYTHING),
        ("pattern-always-6", LOCAL_LAYER, WINDOW),
        ("layers-exchanged", LOCAL_LAYER, EVERYTHING),
        ("layers-exchanged", GLOBAL_LAYER, WINDOW),
        ("window-on-global-layers", GLOBAL_LAYER, WINDOW),
        ("window-missing", LOCAL_LAYER, EVERYTHING),
    ],
)
def test_a_layer_sees(id: str, spec: Gemma4Spec, steps: tuple[Step, ...], want: set[int]) -> None:
    assert seen(id, spec, steps, 11) == want


def test_a_layer_that_shares_and_misses_the_cache_sees_new_tokens_only() -> None:
    spec = spec_of("gg", num_kv_shared_layers=1)
    # The layer that shares is the only one that mixes.
    silent = "model.layers.0.self_attn.o_proj.weight"
    weights = {n: w * 0 if n == silent else w for n, w in weights_of(spec, "float64").items()}
    changes = find(faults.FAULTS, "sharing-misses-cache").changes
    feed = Feed(tokens=tokens_of(spec, 1, 12), steps=DECODE, dtype="float64")
    other = replace(feed, tokens=((1, *feed.tokens[0][1:]),))
    whole, changed = (faults.run(spec, weights, one, changes)[0] for one in (feed, other))
    assert (whole[:8] != changed[:8]).any(dim=-1).all()
    assert (whole[8:] == changed[8:]).all()
