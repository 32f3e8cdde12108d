"""The page of patches: one line for each patch and release, what caught it, what did not happen."""

from __future__ import annotations

from conformance.detection import Catch
from conformance.engine_mutants import Planting
from conformance.patches import Patch
from conformance.report.engine_detection import engines_page

TITLES = {"one": "the first engine", "two": "the second engine"}


def patch(name: str, backend: str, releases: tuple[str, ...], fault: str | None = None) -> Patch:
    return Patch(
        name=name,
        what="Wrong.",
        backend=backend,
        where="a.b",
        apply="m:f",
        releases=releases,
        shows="decode",
        fault=fault,
    )


PLANTINGS = (
    Planting(
        patch("both", "one", ("2604", "4k"), fault="window-missing"),
        judged={"2604": ("a/first", "a/second"), "4k": ("a/first",)},
        catches=(
            Catch("both", "a/second", "2604", "reference", 1234.5),
            Catch("both", "a/first", "4k", "T = W", float("inf")),
        ),
        reached=7,
    ),
    Planting(patch("survivor", "two", ("4k",)), judged={"4k": ("a/first",)}, reached=3),
)


def test_a_line_for_each_patch_and_release() -> None:
    page = engines_page(PLANTINGS, TITLES)
    start = "| Wrong. | `a.b` | decode |"
    assert (
        f"| `both` on 2604 {start} `window-missing` | `a/second`, number 2 | reference | 1.2e+03 | 7 |\n"
        f"| `both` on 4k {start} `window-missing` | `a/first`, number 1 | T = W | no number | 7 |\n"
    ) in page
    assert page.endswith(f"| `survivor` {start}  | **nothing** | | | 3 |\n")


def test_a_table_for_each_backend_and_what_survived_is_counted() -> None:
    page = engines_page(PLANTINGS, TITLES)
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## `one`: the first engine",
        "## `two`: the second engine",
    ]
    assert "1 of 2 are caught on every release" in page
    assert all(len(line) <= 110 for line in page.splitlines() if not line.startswith("|"))
