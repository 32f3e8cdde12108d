"""What the releases' caches keep (docs/plamo3.md §7), and what their operations do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.transformers.remote import Raised
from tests.families.plamo3.standin.conftest import Standin

pytest_plugins = ["tests.backends.transformers.engines"]

WINDOW = 4
# Tokens that a local layer keeps: the next step adds its own, and sees one more.
KEPT = {"2604": WINDOW - 1, "4k": WINDOW}
# Token 9 at positions 0, 3 and 7.
ROW = [9, 60, 31, 9, 77, 2, 50, 9, 14, 23]


def chunks(*sizes: int) -> list[list[list[int]]]:
    """ROW in chunks of these sizes."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [[ROW[start : start + size]] for start, size in zip(starts, sizes, strict=True)]


def test_classes(standin: Standin) -> None:
    found = standin.ask("cached", chunks(2))
    assert (found["cache"], found["layers"]) == {
        "2604": (
            "DynamicCache",
            ["DynamicSlidingWindowLayer", "DynamicLayer", "DynamicSlidingWindowLayer"],
        ),
        "4k": ("Plamo3Cache", []),
    }[standin.release]


@pytest.mark.parametrize("sizes", [(10,), (3, 6, 1), (1,) * 10, (4, 1, 1), (5, 1), (2, 8)], ids=str)
def test_a_local_layer_keeps_its_window_and_a_global_one_everything(
    standin: Standin, sizes: tuple[int, ...]
) -> None:
    found = standin.ask("cached", chunks(*sizes))
    seen = [sum(sizes[: step + 1]) for step in range(len(sizes))]
    local = [min(count, KEPT[standin.release]) for count in seen]
    assert found["kept"] == [[kept, count, kept] for kept, count in zip(local, seen, strict=True)]
    assert found["seen"] == seen[-1]


def test_a_window_of_one(standin_of: Callable[[str], Standin]) -> None:
    """Transformers' layer keeps everything then instead of nothing (docs/standins.md); ours keeps one."""
    for release, kept in (("2604", 5), ("4k", 1)):
        standin = standin_of(release)
        narrow = standin.another(window_size=1)
        assert standin.ask("cached", chunks(4, 1), directory=narrow)["kept"][-1] == [kept, 5, kept]


def test_keys_are_kept_before_rope_and_after_their_norm(standin: Standin) -> None:
    """A local layer's are the last ones, as they were projected: no position is in them."""
    found, parts = standin.ask("cached", chunks(10)), standin.ask("projected", ROW)
    for name in ("keys", "values"):
        kept = np.array(found[name])
        want = np.array(parts[name])[:, -KEPT[standin.release] :]
        np.testing.assert_allclose(kept, want, rtol=1e-4, atol=1e-5)


def test_one_token_has_one_key_at_every_position(standin: Standin) -> None:
    """The same without naming a part of the model; layer 0 sees embeddings alone."""
    long = standin.another(window_size=10)
    keys = np.array(standin.ask("cached", chunks(8), directory=long)["keys"])
    np.testing.assert_allclose(keys[:, 0], keys[:, 3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(keys[:, 0], keys[:, 7], rtol=1e-4, atol=1e-5)
    assert np.abs(keys[:, 0] - keys[:, 1]).max() > 0.1


ROWS = [[9, 60, 31], [5, 6, 7], [1, 2, 3]]


def test_reordered_rows(standin: Standin) -> None:
    before, after, seen = standin.ask("operated", ROWS, "reorder_cache", [2, 0, 0])
    for old, new in zip(before, after, strict=True):
        assert new == [old[2], old[0], old[0]]
    assert seen == [3, 3, 3]


def test_cut_back_while_everything_is_there(standin: Standin) -> None:
    before, after, seen = standin.ask("operated", ROWS, "crop", 1)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(np.array(new), np.array(old)[:, :, :1])
    assert seen == [1, 1, 1]


class TestPlamo3Cache:
    """4k's own operations (docs/standins.md)."""

    @pytest.fixture
    def ours(self, standin_of: Callable[[str], Standin]) -> Callable[..., Any]:
        standin = standin_of("4k")
        return lambda *arguments: standin.ask("operated", *arguments)

    @pytest.mark.parametrize("length", [10, 15])
    def test_nothing_to_cut(self, ours: Callable[..., Any], length: int) -> None:
        before, after, seen = ours([ROW], "crop", length)
        assert (after, seen) == (before, [10, 10, 10])

    @pytest.mark.parametrize(("length", "words"), [(9, "9"), (0, "0"), (-1, "9"), (-12, "0")])
    def test_dropped_tokens_would_be_in_view_again(
        self, ours: Callable[..., Any], length: int, words: str
    ) -> None:
        with pytest.raises(Raised) as caught:
            ours([ROW], "crop", length)
        assert str(caught.value) == (
            f"ValueError: cannot crop to {words} tokens: layer 0 has kept only the last 4 of 10"
        )

    @pytest.mark.parametrize(("length", "left"), [(0, 0), (-1, 2), (-5, 0), (2, 2)])
    def test_lengths(self, ours: Callable[..., Any], length: int, left: int) -> None:
        _, after, seen = ours(ROWS, "crop", length)
        assert [np.array(keys).shape[2] for keys in after] == [left] * 3
        assert seen == [left] * 3

    def test_reset_empties(self, ours: Callable[..., Any]) -> None:
        _, after, seen = ours([ROW], "reset")
        assert (after, seen) == ([None] * 3, [0, 0, 0])


class TestDynamicCache:
    """What Transformers' own cache does is reported as it is (docs/standins.md)."""

    @pytest.fixture
    def theirs(self, standin_of: Callable[[str], Standin]) -> Callable[..., Any]:
        standin = standin_of("2604")
        return lambda *arguments: standin.ask("operated", *arguments)

    @pytest.mark.parametrize("length", [9, 10, 15])
    def test_it_refuses_once_a_window_was_seen_also_where_nothing_would_be_cut(
        self, theirs: Callable[..., Any], length: int
    ) -> None:
        with pytest.raises(Raised, match=r"^ValueError: .*DynamicSlidingWindowLayer"):
            theirs([ROW], "crop", length)

    def test_reset_leaves_zeros(self, theirs: Callable[..., Any]) -> None:
        before, after, _ = theirs([ROW], "reset")
        for old, new in zip(before, after, strict=True):
            assert np.shape(old) == np.shape(new)
            assert not np.array(new).any()
