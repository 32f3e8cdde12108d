"""The stand-ins' forward pass, rule by rule (docs/plamo3.md §3 to §8, docs/standins.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.transformers.remote import Raised
from tests.families.plamo3.standin.conftest import Standin

pytest_plugins = ["tests.backends.transformers.engines"]

WINDOW = 4
LOCAL, GLOBAL = 0, 1  # layers of the tiny model
ROW = [9, 60, 31, 8, 77, 2, 50, 19, 14, 23]


def logits(standin: Standin, row: list[int], **given: Any) -> np.ndarray:
    return np.array(standin.ask("call", [row], given)["logits"], np.float32)


class TestParameters:
    def test_offsets_of_the_norms(self, standin: Standin) -> None:
        assert standin.ask("modules")["offsets"] == {
            "norm": 1.0,
            "q_norm": 1.0,
            "k_norm": 1.0,
            "pre_mixer_norm": 1.0,
            "pre_mlp_norm": 1.0,
            "post_mixer_norm": 1 / 5,
            "post_mlp_norm": 5**-1.5,
        }

    def test_a_tied_head_is_the_embedding(self, standin: Standin) -> None:
        found = standin.ask("modules")
        assert (found["head"], found["tied"]) == ([97, 48], True)

    def test_an_untied_head_is_padded_and_its_logits_are_cut(self, standin: Standin) -> None:
        untied = standin.another(tie_word_embeddings=False)
        found = standin.ask("modules", directory=untied)
        assert (found["head"], found["tied"]) == ([112, 48], False)
        answer = standin.ask("call", [ROW], {}, directory=untied)
        assert np.shape(answer["logits"]) == (1, 10, 97)


class TestWindow:
    def test_the_band_of_a_local_layer(self, standin: Standin) -> None:
        """The last of T rows sees as many keys as its release's span (docs/plamo3.md §6)."""
        span = {"2604": WINDOW, "4k": WINDOW + 1}[standin.release]
        seen = np.array(standin.ask("band", 7, 7, WINDOW))
        query, key = np.mgrid[0:7, 0:7]
        np.testing.assert_array_equal(seen, (key <= query) & (query - key < span))

    def test_rows_on_top_of_a_cache(self, standin: Standin) -> None:
        seen = np.array(standin.ask("band", 2, 7, WINDOW))
        np.testing.assert_array_equal(seen, np.array(standin.ask("band", 7, 7, WINDOW))[-2:])

    def test_a_global_layer_is_causal_and_no_more(self, standin: Standin) -> None:
        np.testing.assert_array_equal(standin.ask("band", 6, 6, None), np.tri(6))


class TestRope:
    def test_local_layers_are_plain(self, standin: Standin) -> None:
        found = standin.ask("rotary", LOCAL)
        np.testing.assert_allclose(found["frequencies"], 10_000.0 ** (-np.arange(8) / 8), rtol=1e-14)
        assert found["amplitude"] == 1.0

    def test_global_layers_of_4k_are_plain(self, standin_of: Callable[[str], Standin]) -> None:
        found = standin_of("4k").ask("rotary", GLOBAL)
        np.testing.assert_allclose(found["frequencies"], 1_000_000.0 ** (-np.arange(8) / 8), rtol=1e-14)
        assert found["amplitude"] == 1.0

    def test_global_layers_of_2604_have_yarn(self, standin_of: Callable[[str], Standin]) -> None:
        """From the formula of docs/plamo3.md §5, for d 16, L0 512, s 16."""
        found = standin_of("2604").ask("rotary", GLOBAL)
        low, high = (8 * math.log(512 / (beta * 2 * math.pi)) / math.log(1e6) for beta in (32, 1))
        pair = np.arange(8)
        mask = 1 - np.clip((pair - low) / (high - low), 0, 1)
        plain = 1e6 ** (-pair / 8)
        want = (1 - mask) * plain / 16 + mask * plain
        assert 0 < mask[1] < 1
        np.testing.assert_allclose(found["frequencies"], want, rtol=1e-14)
        amplitude = 0.1 * math.log(16) + 1
        assert found["amplitude"] == pytest.approx(amplitude, rel=1e-15)
        angles = np.tile(3 * want, 2)
        np.testing.assert_allclose(found["cos"], amplitude * np.cos(angles), rtol=1e-12)
        np.testing.assert_allclose(found["sin"], amplitude * np.sin(angles), rtol=1e-12)

    def test_4k_does_not_scale(self, standin_of: Callable[[str], Standin]) -> None:
        standin = standin_of("4k")
        scaled = standin.another({"rope_scaling_factor": 16.0})
        with pytest.raises(Raised) as caught:
            standin.ask("call", [ROW], {}, directory=scaled)
        assert str(caught.value) == (
            "ValueError: rope_type = 'yarn', but should be 'default': 4k does not scale RoPE"
        )

    def test_position_ids_are_accepted_and_ignored(self, standin: Standin) -> None:
        moved = logits(standin, ROW, position_ids=[[5 * place + 3 for place in range(10)]])
        np.testing.assert_array_equal(moved, logits(standin, ROW))


class TestTraining:
    """docs/plamo3.md §8."""

    @pytest.mark.parametrize("length", range(WINDOW - 1, WINDOW + 4))
    def test_the_mask_is_skipped_up_to_w_plus_1(self, standin: Standin, length: int) -> None:
        row = ROW[:length]
        difference = np.abs(logits(standin, row, training=True) - logits(standin, row)).max(axis=-1)[0]
        if standin.release == "2604" and length == WINDOW + 1:
            assert not difference[:-1].any()
            assert difference[-1] > 0.01
        else:
            assert difference.max() < 1e-4

    def test_not_when_a_mask_is_given(self, standin: Standin) -> None:
        row = ROW[: WINDOW + 1]
        np.testing.assert_array_equal(
            logits(standin, row, training=True, attention_mask=[[1] * len(row)]),
            logits(standin, row, attention_mask=[[1] * len(row)]),
        )

    def test_not_on_a_cache(self, standin: Standin) -> None:
        row = ROW[: WINDOW + 1]
        cached = logits(standin, row, training=True, use_cache=True)
        np.testing.assert_array_equal(cached, logits(standin, row))

    def test_a_cache_is_made_in_evaluation_only(self, standin: Standin) -> None:
        made = {
            (training, use): standin.ask("call", [ROW], {"training": training, **use_cache})["cache"]
            for training in (False, True)
            for use, use_cache in ((None, {}), (True, {"use_cache": True}), (False, {"use_cache": False}))
        }
        assert [place for place, cache in made.items() if cache] == [
            (False, None),
            (False, True),
            (True, True),
        ]


class TestMasks:
    def test_padding_changes_nothing_and_is_finite(self, standin: Standin) -> None:
        mask = [[0] * 3 + [1] * 10]
        padded = logits(standin, [1, 2, 3, *ROW], attention_mask=mask)
        assert np.isfinite(padded).all()
        np.testing.assert_allclose(padded[:, 3:], logits(standin, ROW), rtol=0, atol=1e-4)
        other = logits(standin, [4, 5, 6, *ROW], attention_mask=mask)
        np.testing.assert_array_equal(other[:, 3:], padded[:, 3:])

    def test_a_mask_that_does_not_cover_the_cache(self, standin: Standin) -> None:
        with pytest.raises(Raised) as caught:
            standin.ask("on_top", [ROW], [[1, 2]], [[1, 1]])
        kept = {"2604": WINDOW + 1, "4k": WINDOW + 2}[standin.release]
        assert str(caught.value) == (
            f"ValueError: attention_mask has 2 columns, but the cache returned {kept} keys"
        )

    def test_a_mask_that_covers_more_than_the_cache(self, standin: Standin) -> None:
        """Local layers may have dropped the first columns; a global one has them all."""
        with pytest.raises(Raised) as caught:
            standin.ask("on_top", [ROW], [[1, 2]], [[1] * 13])
        assert str(caught.value) == (
            "ValueError: attention_mask has 13 columns, but the cache returned 12 keys"
        )
