"""The page of engines: generated from the deviation files, and stored as generated."""

from __future__ import annotations

from conformance.backends.registry import Backend, known_backends
from conformance.case import case_directory
from conformance.deviations import read_deviations
from conformance.report.engines import engines_page, entry_data
from tests.conftest import ROOT
from tests.report.records import DECLINED, KNOWN

MINE = Backend(name="mine", title="my engine", releases=("2604", "4k"), release_code="2604")


def test_the_stored_page_is_the_generated_one() -> None:
    """Write it again with: conformance deviations --docs docs."""
    known = known_backends()
    entries = read_deviations(case_directory() / "deviations", known)
    assert (ROOT / "docs" / "engines.md").read_text() == engines_page(known.values(), entries)


def test_a_page() -> None:
    page = engines_page([MINE], [KNOWN, DECLINED])
    start = page.index("## mine")
    assert page[start:].splitlines() == [
        "## mine: my engine",
        "",
        "Found on our [stand-in](standins.md); released code, once named, is held to the same.",
        "",
        "### Release 2604",
        "",
        "**It forgets.**",
        "Found with `engine` >=1 on 2026-01-31; docs/plamo3.md §7.",
        "",
        "| fault | what | section |",
        "|---|---|---|",
        "| `reset-ignored` | Emptying the cache does nothing. | docs/plamo3.md §7 |",
        "",
        "**It has no kernel.**",
        "Found with `engine` >=1 or `engine-cpu` ==2.* on 2026-01-31; docs/plamo3.md §3.",
        "",
        "| no logits in | claims | error |",
        "|---|---|---|",
        "| `decode/*` | `reference`, `whole*` | `failed: *` |",
        "",
        "### Release 4k",
        "",
        "No difference is recorded.",
    ]


def test_an_engines_own_code_is_no_standin() -> None:
    page = engines_page([Backend(name="mine", title="my engine", releases=("2604",))], [])
    assert "stand-in" not in page


def test_entries_as_data() -> None:
    assert entry_data(KNOWN) == {
        "backend": "mine",
        "release": "2604",
        "what": "it forgets",
        "evidence": "docs/plamo3.md §7",
        "date": "2026-01-31",
        "versions": {"engine": ">=1"},
        "entry": "mine.toml entry 1",
        "kind": "prediction",
        "faults": [
            {
                "id": "reset-ignored",
                "what": "Emptying the cache does nothing.",
                "section": "docs/plamo3.md §7",
            }
        ],
    }
    declined = entry_data(DECLINED)
    assert (declined["kind"], declined["case"], declined["error"]) == ("refusal", ["decode/*"], "failed: *")
