"""Elementary functions that are off on purpose: by no more than was asked for, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conformance.calibration.inexact import ALLOWED, Inexact

VALUES = torch.linspace(0.01, 6.0, 4000)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "sqrt", "rsqrt"])
@pytest.mark.parametrize("share", [1.0, 4.0])
def test_results_are_off_by_no_more_than_allowed_and_by_nearly_that(name: str, share: float) -> None:
    function = getattr(torch, name)
    with Inexact(share, seed=1):
        got = function(VALUES)
    right = function(VALUES)
    units = np.abs((got.double() - right.double()).numpy()) / np.spacing(np.abs(right.numpy()))
    most = share * ALLOWED[name]
    assert units.max() <= most + 0.5
    assert units.max() >= 0.9 * most


@pytest.mark.parametrize("inference", [False, True])
def test_softmax_and_silu_are_disturbed_in_every_mode(inference: bool) -> None:
    with torch.inference_mode(inference), Inexact(1.0, seed=1):
        results = torch.softmax(VALUES, dim=-1), torch.nn.functional.silu(VALUES), VALUES / 3
    right = torch.softmax(VALUES, dim=-1), torch.nn.functional.silu(VALUES), VALUES / 3
    for got, want in zip(results, right, strict=True):
        assert (got != want).float().mean() > 0.5
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0)


def test_sums_and_products_are_left_alone() -> None:
    matrix = VALUES.reshape(40, 100)
    right = matrix @ matrix.T, matrix + 1, matrix * 3
    with Inexact(4.0, seed=1):
        got = matrix @ matrix.T, matrix + 1, matrix * 3
    for one, other in zip(got, right, strict=True):
        assert torch.equal(one, other)


def test_equal_seeds_are_equally_off() -> None:
    runs = []
    for seed in (1, 1, 2):
        with Inexact(1.0, seed):
            runs.append(torch.exp(VALUES))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_zero_stays_zero() -> None:
    with Inexact(1.0, seed=1):
        assert torch.equal(torch.sin(torch.zeros(8)), torch.zeros(8))
