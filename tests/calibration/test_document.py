"""docs/tolerances.md is what the stored numbers say, and speaks of the constants that grade."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.calibration.document import document
from conformance.calibration.plots import PLOTS
from conformance.calibration.records import CONFORMING, Records, gather, read_records, write_records
from conformance.calibration.subjects import DTYPES
from conformance.calibration.summary import alarms
from conformance.compare.verdict import DRIFT, ROUNDING
from conformance.faults import NOTHING, faults_of
from tests.calibration.samples import FACTS, bulk, group, many, records, sample, samples

ROOT = Path(__file__).parent.parent.parent
STORED = ROOT / "docs" / "tolerances"
PAGE = ROOT / "docs" / "tolerances.md"
LARGEST = 3_000_000


@pytest.fixture(scope="module")
def stored() -> Records:
    return read_records(STORED)


class TestTheStoredStudy:
    def test_the_page_is_what_the_stored_numbers_say(self, stored: Records) -> None:
        again = "write it again: python -m conformance.calibration --from docs/tolerances"
        assert PAGE.read_text() == document(stored), again

    def test_the_constants_on_the_page_are_those_that_grade(self) -> None:
        found = dict(re.findall(r"^\| `(ROUNDING|DRIFT)`[^|]*\| ([^ ]+) \|", PAGE.read_text(), re.MULTILINE))
        assert {name: float(value) for name, value in found.items()} == {"ROUNDING": ROUNDING, "DRIFT": DRIFT}

    def test_no_engine_that_conforms_is_beyond_rounding(self, stored: Records) -> None:
        for dtype in DTYPES:
            assert alarms(stored, dtype, ROUNDING).positions[0] == 0

    def test_it_is_large_enough(self, stored: Records) -> None:
        of_engines = [kind for kind in stored.groups if kind.kind == CONFORMING]
        assert sum(stored.groups[kind].positions for kind in of_engines) >= 100_000
        assert {"reference over a cache", "plamo3-2604", "plamo3-4k", "vllm"} <= {
            g.engine for g in of_engines
        }
        assert {g.release for g in of_engines if g.engine == "vllm"} == {"2604"}

    def test_totals_and_counts_agree(self, stored: Records) -> None:
        for number, kind in stored.numbered().items():
            its = [total for total in stored.totals if total.group == number]
            assert sum(total.positions for total in its) == stored.groups[kind].positions

    def test_every_fault_of_the_bank_was_tried(self, stored: Records) -> None:
        bank = {fault.id for fault in faults_of("plamo3").FAULTS if fault.reveals != NOTHING}
        tried = {effect.fault for effect in stored.effects}
        assert tried == bank, "the bank has changed since: nox -s calibrate"

    def test_the_files_are_small(self) -> None:
        assert sum(path.stat().st_size for path in STORED.iterdir()) < LARGEST

    @pytest.mark.parametrize("name", PLOTS)
    def test_every_plot_is_there_and_shown(self, name: str) -> None:
        assert ET.parse(STORED / f"{name}.svg").getroot().tag.endswith("svg")
        assert f"](tolerances/{name}.svg)" in PAGE.read_text()

    def test_links_lead_somewhere(self) -> None:
        for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
            assert (PAGE.parent / target).exists(), target


class TestWords:
    def test_a_study_that_gives_other_constants_says_so(self) -> None:
        bad = sample(group("bad"), *bulk(4.0))
        text = document(gather(FACTS, [*samples(), *many(), bad], records().effects, records().levels))
        assert "**The constants in force are not those that the rules below give**" in text

    def test_faults_below_the_bound_are_listed(self) -> None:
        text = document(records())
        assert "| BF16 | `quiet` | norm | 1.25 | 40.0 | 0.62 |" in text
        assert "No fault stays below" in text

    def test_a_fault_that_nothing_shows_is_named(self) -> None:
        quiet = [
            replace(effect, ratio=1.25) if effect.fault == "quiet" else effect for effect in records().effects
        ]
        text = document(replace(records(), effects=quiet))
        assert "in every dtype that they can show in: `quiet`." in text

    def test_an_engine_that_conforms_to_nothing_is_not_named(self) -> None:
        assert "differs:\n`mine` on 2604. Then" in document(records())

    def test_counts_are_those_of_the_records(self) -> None:
        assert "Behind them: 4,030 positions" in document(records())

    def test_it_ends_with_one_line_end(self) -> None:
        text = document(records())
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert "\n\n\n" not in text


def test_plots_are_no_reason_to_need_matplotlib() -> None:
    modules = "conformance.calibration.plots", "conformance.calibration.__main__"
    code = f"import {', '.join(modules)}, sys; print('matplotlib' in sys.modules, 'torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == ["False", "False"]


def test_the_command_writes_the_page_beside_the_numbers(tmp_path: Path) -> None:
    write_records(tmp_path / "numbers", records())
    command = [sys.executable, "-m", "conformance.calibration", "--from", str(tmp_path / "numbers")]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    assert (tmp_path / "numbers.md").read_text() == document(records())


def test_numbers_that_are_not_there_are_bad_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "conformance.calibration", "--from", str(tmp_path / "none")]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("conformance: ")
