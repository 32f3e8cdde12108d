"""Arithmetic of deviating models: what is rounded, and to which side what is on a border falls."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conformance.families import FAMILIES, family_of
from conformance.families.base import Spec
from conformance.families.stepwise.knobs import StepKnobs
from conformance.families.stepwise.numerics import LEAN, leaning, linear, rounded
from conformance.faults import NOTHING, Fault, faults_of
from conformance.feeds import Feed, Forward
from conformance.trials import models
from tests.families.stepwise.trials import tokens_of, weights_of

UP, DOWN, STRAIGHT = StepKnobs(lean="up"), StepKnobs(lean="down"), StepKnobs()


def normal(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


class TestLeaning:
    def test_it_moves_a_row_by_a_part_of_its_own_size(self) -> None:
        x = normal(3, 1000) * torch.tensor([[1.0], [100.0], [1e-3]])
        root_mean_square = x.double().pow(2).mean(-1, keepdim=True).sqrt()
        for knobs, sign in ((UP, 1), (DOWN, -1)):
            moved = (leaning(x, knobs).double() - x) / root_mean_square
            np.testing.assert_allclose(moved, sign * LEAN, rtol=0.1)
        assert leaning(x, STRAIGHT) is x

    @pytest.mark.parametrize(
        ("dtype", "few"), [(torch.float16, 0.04), (torch.bfloat16, 0.005), (torch.float8_e4m3fn, 0.0005)]
    )
    def test_few_numbers_fall_otherwise_and_those_to_the_next_one(
        self, dtype: torch.dtype, few: float
    ) -> None:
        x = normal(200, 1000)
        straight, up, down = (rounded(x, dtype, knobs) for knobs in (STRAIGHT, UP, DOWN))
        assert torch.equal(straight, x.to(dtype).float())
        for moved, sign in ((up, 1), (down, -1)):
            other = moved != straight
            assert few / 4 < other.float().mean() < few
            assert ((moved - straight)[other].sign() == sign).all()
            # Between the two there is no number of the dtype, except near 0, where they lie close.
            near = other & (x.abs() > 0.25)
            middle = ((moved + straight)[near] / 2).to(dtype).float()
            assert ((middle == moved[near]) | (middle == straight[near])).all()

    @pytest.mark.parametrize("matmul", ["tf32", "float16", "bfloat16"])
    def test_it_reaches_what_is_multiplied(self, matmul: Any) -> None:
        x, w = normal(50, 64), torch.eye(64)
        straight, up, down = (
            linear(x, w, StepKnobs(matmul=matmul, lean=lean)) for lean in ("none", "up", "down")
        )
        assert (up >= straight).all()
        assert (down <= straight).all()
        assert (up != down).any()
        exact = [linear(x, w, knobs) for knobs in (STRAIGHT, UP, DOWN)]
        assert torch.equal(exact[0], exact[1])
        assert torch.equal(exact[0], exact[2])


@cache
def tiny(family: str) -> Spec:
    """A model of the family's first release."""
    ((spec, _),) = models(family, family_of(family).releases[0].name, {}, 1)
    return spec


@pytest.mark.parametrize(
    ("family", "fault"),
    [
        pytest.param(family, fault, id=f"{family}-{fault.id}")
        for family in FAMILIES
        for fault in faults_of(family).FAULTS
        if fault.reveals != NOTHING
    ],
)
def test_faults_that_round_say_so(family: str, fault: Fault) -> None:
    spec, module = tiny(family), faults_of(family)
    width = spec.window_span + 12
    feed = Feed(tokens=tokens_of(spec, 4, width), steps=(Forward(width),)).split([width - 8, 5, 1, 1, 1])
    arranged = module.arrange(spec, weights_of(spec, "float32"), fault.changes)
    straight, up, down = (
        module.run(spec, arranged, feed, {**fault.changes, "lean": lean}).numpy()
        for lean in ("none", "up", "down")
    )
    if fault.rounds:
        assert (up != straight).any()
        assert (down != straight).any()
    else:
        np.testing.assert_array_equal(up, straight)
        np.testing.assert_array_equal(down, straight)
