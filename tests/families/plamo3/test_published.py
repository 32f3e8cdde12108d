from __future__ import annotations

from pathlib import Path

import pytest

from conformance.families import family_of
from conformance.families.plamo3.published import PUBLISHED
from conformance.families.plamo3.spec import RELEASES

DOCUMENT = Path(__file__).parents[3] / "docs" / "plamo3.md"


def documented(check: str) -> dict[str, str]:
    """A row of the table of docs/plamo3.md §9, by release."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {check}")]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    return dict(zip(("2604", "4k"), cells[1:], strict=True))


def test_every_release_has_published_figures() -> None:
    assert tuple(PUBLISHED) == RELEASES
    assert family_of("plamo3").published is PUBLISHED


@pytest.mark.parametrize("release", RELEASES)
def test_the_small_model_is_the_published_one(release: str) -> None:
    published = PUBLISHED[release]
    spec = published.spec
    assert spec.release == release
    assert spec.num_hidden_layers == 8
    assert published.width == 12
    assert 'Small" is the released class with random weights: 8 layers, D 48, d 16, W 4, 12 tokens' in (
        DOCUMENT.read_text()
    )
    assert (spec.hidden_size, spec.head_dim, spec.window_size) == (48, 16, 4)  # type: ignore[attr-defined]


@pytest.mark.parametrize("release", RELEASES)
def test_the_figures_are_the_documented_ones(release: str) -> None:
    published = PUBLISHED[release]
    assert (
        f"{published.decode_error:.1e}".replace("e-0", "e-")
        == (documented("small: largest logit error, one token at a time against the whole sequence")[release])
    )
    assert (
        f"{published.split_error:.1e}".replace("e-0", "e-")
        == (documented("small: the same for a prefill in pieces of 3, 6 and 3")[release])
    )
    assert published.split == (3, 6, 3)
    assert published.section == "docs/plamo3.md §9"


@pytest.mark.parametrize("release", RELEASES)
def test_training_differs_where_it_was_published_to_differ(release: str) -> None:
    published = PUBLISHED[release]
    cells = documented("small: training against evaluation mode at T = 4, 5 and 6")[release].split(", ")
    differences = [float(cell.strip("*")) for cell in cells]
    assert published.training == {t: d > 0 for t, d in zip((4, 5, 6), differences, strict=True)}
    assert published.spec.window_size == 4
    assert all(d > published.training_difference for d in differences if d)


def test_the_small_model_lies_in_both_kinds_of_layers_and_beyond_the_window() -> None:
    for published in PUBLISHED.values():
        assert set(published.spec.layer_kinds) == {"local", "global"}
        assert published.width > published.spec.window_span + 1
