"""The cases' tiny models hide nothing: every parameter and rule of Gemma 4 leaves a trace."""

from __future__ import annotations

import pytest
import torch

from conformance.families.gemma4.parameters import parameter_table
from conformance.feeds import Feed, Forward
from tests.families.gemma4.sensitivity import (
    MISTAKES,
    Subject,
    disturbed,
    mistake_sensitivity,
    subject,
    subjects,
    tensor_sensitivity,
)
from tests.families.gemma4.sizes import tiny

LEAST = 100.0
# What an evaluation in yet another order may be off by; as much as counts as rounding.
ROUNDING = 8.0
MODELS = 3
FED = Feed(tokens=((3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38),), steps=(Forward(14),))
RUNS = {name: run for mistakes in MISTAKES.values() for name, run in mistakes.items()}


@pytest.fixture(scope="module")
def drawn() -> list[Subject]:
    return list(subjects(MODELS))


def test_the_undisturbed_model_stays_within_the_noise(drawn: list[Subject]) -> None:
    for one in drawn:
        assert one.moved(one.run()).max() <= 1


def test_every_parameter_tensor_leaves_a_trace(drawn: list[Subject]) -> None:
    for one in drawn:
        moved = tensor_sensitivity(one)
        assert list(moved) == list(parameter_table(one.spec))
        weak = {name: ratio for name, ratio in moved.items() if ratio < LEAST}
        assert not weak, one.spec.describe()


def test_every_hiding_place_is_avoided(drawn: list[Subject]) -> None:
    for one in drawn:
        moved = mistake_sensitivity(one)
        weak = {mistake: ratio for mistake, ratio in moved.items() if ratio < LEAST}
        assert not weak, one.spec.describe()


def test_ten_hiding_places_are_numbered() -> None:
    assert [number for number, _ in MISTAKES] == list(range(1, 11))


def test_mistakes_in_scores_show_at_every_position_but_the_first(drawn: list[Subject]) -> None:
    for one in drawn:
        for name in ("scores scaled", "no RoPE"):
            moved = one.moved(RUNS[name](one))
            assert moved[0] <= ROUNDING, name
            assert moved[-1] >= LEAST, name


def test_a_missing_softcap_shows_where_no_top_token_changes(drawn: list[Subject]) -> None:
    for one in drawn:
        logits = RUNS["no softcap"](one)
        assert (logits.argmax(-1) == one.exact.argmax(-1)).all()
        assert one.moved(logits).min() >= LEAST


def test_a_disturbance_is_one_step_of_bf16_in_every_second_row() -> None:
    w = torch.tensor([[1.0, -2.0], [1.0, 1.0], [0.5, 3.0]])
    after = disturbed(w)
    assert after.tolist() == [[1.0 + 2**-7, -2.0 - 2**-6], [1.0, 1.0], [0.5 + 2**-8, 3.0 + 2**-6]]
    assert torch.equal(after.bfloat16().float(), after)


def careless(name: str) -> Subject:
    """A model, or a text, that makes the mistake of one hiding place."""
    match name:
        case "a fresh model":
            return subject(tiny(), 1, FED, "fresh")
        case "a key/value head for each query head":
            return subject(tiny(num_key_value_heads=6, num_global_key_value_heads=6), 1, FED)
        case "a text inside the window":
            return subject(tiny(window_size=14), 1, FED)
        case "equal thetas":
            return subject(tiny(rope_theta=10_000.0), 1, FED)
        case "position 0 alone":
            return subject(tiny(), 1, FED.first(1))
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("mistake", "carelessness"),
    [
        ("layer scalars left out", "a fresh model"),
        ("q and k gains exchanged", "a fresh model"),
        ("heads tiled", "a key/value head for each query head"),
        ("one key more", "a text inside the window"),
        ("thetas exchanged", "equal thetas"),
        ("scores scaled", "position 0 alone"),
    ],
)
def test_a_careless_model_hides_what_ours_shows(mistake: str, carelessness: str) -> None:
    shows, hides = subject(tiny(), 1, FED), careless(carelessness)
    assert shows.moved(RUNS[mistake](shows)).max() >= LEAST
    assert hides.moved(RUNS[mistake](hides)).max() <= ROUNDING
