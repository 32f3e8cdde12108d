from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import torch

from conformance.checkpoints.random import bell, raw_words, round_to_bfloat16

WORD = 2**64 - 1


def philox4x64_10(counter: list[int], key: list[int]) -> list[int]:
    """One block of the generator, as its paper describes it."""
    x, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * x[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * x[2], 2**64)
        x = [high1 ^ x[1] ^ k[0], low1, high0 ^ x[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B97F4A7C15) & WORD, (k[1] + 0xBB67AE8584CAA73B) & WORD]
    return x


def test_our_philox_gives_the_known_answers_of_its_authors() -> None:
    assert philox4x64_10([0] * 4, [0] * 2) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]


@pytest.mark.parametrize("name", ["", "a", "model.norm.weight", "重み"])
def test_words_are_philox_blocks_of_counters_from_1(name: str) -> None:
    key = list(struct.unpack("<2Q", hashlib.sha256(name.encode()).digest()[:16]))
    expected = [word for count in (1, 2, 3) for word in philox4x64_10([count, 0, 0, 0], key)]
    assert raw_words(name, 12).tolist() == expected
    assert raw_words(name, 5).tolist() == expected[:5]


def test_bell_sums_the_four_fields_of_a_word() -> None:
    words = raw_words("name", 6).tolist()
    fields = [sum(word >> shift & 0xFFFF for shift in (0, 16, 32, 48)) for word in words]
    standard_deviation = (4 * (65536**2 - 1) / 12) ** 0.5
    expected = [(total - 131070) / standard_deviation for total in fields]
    np.testing.assert_allclose(bell("name", (2, 3)).flatten(), expected, rtol=1e-14)


def test_bell_is_nearly_standard_normal() -> None:
    values = bell("name", (200_000,))
    assert values.dtype == np.float64
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values**3).mean()) < 0.02
    assert abs((values**4).mean() - (3 - 6 / 5 / 4)) < 0.05  # the kurtosis of four uniform summands
    assert np.abs(values).max() <= 3.47


def test_bell_is_these_bits_on_every_machine_and_library_version() -> None:
    digest = hashlib.sha256(bell("name", (64, 3)).astype("<f8").tobytes()).hexdigest()
    assert digest == "7df2f1b0fe43a9fc7a73dc812112a249f530b4f810967d3ee070e375136371cf"


def test_names_have_streams_of_their_own() -> None:
    first, second = bell("a", (10_000,)), bell("b", (10_000,))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_a_shape_only_folds_the_stream() -> None:
    assert np.array_equal(bell("name", (3, 4)).flatten(), bell("name", (12,)))
    assert bell("name", ()).shape == ()
    assert bell("name", (0, 4)).shape == (0, 4)


def test_rounding_is_torch_s_to_bfloat16() -> None:
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), -(1 + 3 * 2**-8)])  # between two BF16 values
    nearly = np.nextafter(ties.astype(np.float32), np.float32(2), dtype=np.float32)
    rest = [0.0, -0.0, 1e-45, 1e-40, 3.0e38, 65504.0, 2.0**-126]
    values = np.concatenate([ties, nearly, rest, bell("name", (1000,)) * 1e3]).astype(np.float32)
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    assert round_to_bfloat16(values).tobytes() == expected.tobytes()


def test_ties_go_to_even() -> None:
    assert round_to_bfloat16(np.array([1 + 2**-8, 1 + 3 * 2**-8])).tolist() == [1.0, 1 + 2**-6]


def test_rounding_twice_changes_nothing_and_keeps_the_shape() -> None:
    once = round_to_bfloat16(bell("name", (3, 5)))
    assert once.shape == (3, 5)
    assert once.dtype == np.float32
    assert np.array_equal(round_to_bfloat16(once), once)
    assert not (once.view(np.uint32) & 0xFFFF).any()
    assert round_to_bfloat16(np.array(1.001)).shape == ()
