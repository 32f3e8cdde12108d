from __future__ import annotations

from conformance.faults import faults_of, find
from conformance.report.detection import cases_page, detection_page, page_name


def test_each_family_has_its_own_pages() -> None:
    assert [page_name("detection", family) for family in ("plamo3", "gemma4")] == [
        "detection.md",
        "detection-gemma4.md",
    ]
    assert page_name("cases", "gemma4") == "cases-gemma4.md"


def test_pages_say_how_they_were_written_and_lead_to_each_other() -> None:
    fault = find(faults_of("gemma4").FAULTS, "softcap-missing")
    page = cases_page("gemma4", [], [fault], [])
    assert "Written by `nox -s mutants -- --family gemma4`: each of 1 faults" in page
    assert "([detection-gemma4.md](detection-gemma4.md))" in page
    assert "Written by `nox -s mutants -- --family gemma4`." in detection_page("gemma4", [], [fault], [])
    assert "Written by `nox -s mutants`." in detection_page("plamo3", [], [fault], [])
