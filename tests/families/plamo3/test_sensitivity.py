"""The cases' tiny models hide nothing: every parameter and rule leaves a trace (docs/checkpoints.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from conformance.families.plamo3.faults import FAULTS
from conformance.families.plamo3.parameters import parameter_table
from conformance.families.plamo3.spec import RELEASES, Plamo3Spec
from conformance.families.plamo3.weights import tiny_weights
from conformance.faults import find
from conformance.feeds import Feed, Forward
from tests.families.plamo3.sensitivity import (
    HIDING_PLACES,
    Subject,
    disturbed,
    fault_sensitivity,
    subject,
    subjects,
    tensor_sensitivity,
)
from tests.families.plamo3.sizes import tiny, tiny_2604

LEAST = 100.0
# What an evaluation in yet another order may be off by; as much as counts as rounding.
ROUNDING = 8.0
MODELS = 2
FED = Feed(tokens=((3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38),), steps=(Forward(14),))


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Subject]]:
    return {release: list(subjects(release, MODELS)) for release in RELEASES}


@pytest.mark.parametrize("release", RELEASES)
def test_the_undisturbed_model_stays_within_the_noise(release: str, drawn: dict[str, list[Subject]]) -> None:
    for one in drawn[release]:
        assert one.moved(one.with_weights(one.weights)).max() <= 1
        right = one.with_fault(None)
        assert right is not None
        assert one.moved(right).max() <= ROUNDING


@pytest.mark.parametrize("release", RELEASES)
def test_every_parameter_tensor_leaves_a_trace(release: str, drawn: dict[str, list[Subject]]) -> None:
    for one in drawn[release]:
        moved = tensor_sensitivity(one)
        assert list(moved) == list(parameter_table(one.spec))
        weak = {name: ratio for name, ratio in moved.items() if ratio < LEAST}
        assert not weak, one.spec.describe()


def test_every_hiding_place_is_avoided(drawn: dict[str, list[Subject]]) -> None:
    shown: set[tuple[int, str]] = set()
    for one in (one for release in RELEASES for one in drawn[release]):
        moved = fault_sensitivity(one)
        weak = {mistake: ratio for mistake, ratio in moved.items() if ratio < LEAST}
        assert not weak, one.spec.describe()
        shown |= set(moved)
    assert shown == {(number, fault) for number, place in HIDING_PLACES.items() for fault in place.faults}


@pytest.mark.parametrize("release", RELEASES)
def test_mistakes_in_attention_show_at_every_position_but_the_first(
    release: str, drawn: dict[str, list[Subject]]
) -> None:
    for one in drawn[release]:
        for fault_id in HIDING_PLACES[5].faults:
            logits = one.with_fault(fault_id)
            if logits is None:
                assert (release, fault_id) == ("4k", "amplitude-missing")
                continue
            assert one.moved(logits)[0] <= ROUNDING, fault_id
            assert one.moved(logits)[-1] >= LEAST, fault_id


@pytest.mark.parametrize("release", RELEASES)
def test_mistakes_in_values_show_where_no_top_token_changes(
    release: str, drawn: dict[str, list[Subject]]
) -> None:
    for one in drawn[release]:
        logits = one.with_fault("logits-normalised")
        assert logits is not None
        assert (logits.argmax(-1) == one.exact.argmax(-1)).all()


def test_ten_hiding_places_are_numbered() -> None:
    assert list(HIDING_PLACES) == list(range(1, 11))


def test_a_disturbance_is_one_step_of_bf16_in_every_second_row() -> None:
    w = torch.tensor([[1.0, -2.0], [1.0, 1.0], [0.5, 3.0]])
    after = disturbed(w)
    assert after.tolist() == [[1.0 + 2**-7, -2.0 - 2**-6], [1.0, 1.0], [0.5 + 2**-8, 3.0 + 2**-6]]
    assert torch.equal(after.bfloat16().float(), after)


def careless(name: str) -> Subject:
    """A model, or a text, that makes the mistake of one hiding place."""
    match name:
        case "norm weights of zero":
            one = subject(tiny(), 1, FED)
            fresh = {name: torch.from_numpy(w) for name, w in tiny_weights(one.spec, 1, "fresh").items()}
            exact = one.with_weights(fresh)
            return replace(one, weights=fresh, exact=exact.astype("float64"))
        case "a key/value head for each query head":
            return subject(tiny(num_key_value_heads=6), 1, FED)
        case "a text inside the window":
            return subject(tiny_2604(window_size=14), 1, FED)
        case "equal thetas":
            return subject(tiny(rope_theta=10_000.0), 1, FED)
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("mistake", "carelessness", "careful"),
    [
        ("head-gains-exchanged", "norm weights of zero", tiny),
        ("gqa-tiled", "a key/value head for each query head", tiny),
        ("window-one-long", "a text inside the window", tiny_2604),
        ("thetas-exchanged", "equal thetas", tiny),
    ],
)
def test_a_careless_model_hides_what_ours_shows(
    mistake: str, carelessness: str, careful: Callable[[], Plamo3Spec]
) -> None:
    shows, hides = subject(careful(), 1, FED), careless(carelessness)
    seen = shows.with_fault(mistake)
    assert seen is not None
    assert shows.moved(seen).max() >= LEAST
    hidden = hides.with_changes(find(FAULTS, mistake).changes, hides.feed)
    assert hides.moved(hidden).max() <= ROUNDING
