"""Words: what a stranger reads, word for word, and the same as plain data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.compare.verdict import Place
from conformance.triage.diagnosis import CONFORMS, NAMED, UNJUDGED, UNKNOWN, Diagnosis, Finding, Span
from conformance.triage.probes import Probe
from conformance.triage.search import Rival
from conformance.triage.words import diagnosis_data, diagnosis_lines


@pytest.fixture
def named(probes: dict[str, Probe]) -> Diagnosis:
    """The window of a local layer is one token short."""
    whole, decode, first = (
        probes["beyond the window"],
        probes["one at a time from 2"],
        probes["the first token"],
    )
    name = ("window-one-short",)
    window = whole.spec.window_size
    return Diagnosis(
        release="4k",
        status=NAMED,
        named=name,
        ties=(),
        parts={"window-one-short": (123456.0, 2.34)},
        by_phase={},
        findings=(
            Finding(first, 1.04, 1.04, 1.0, (), 0, 1, None),
            Finding(whole, 123456.0, 1.96, 1e-5, name, 9, 20, Place(0, window + 1)),
            Finding(decode, 2345.6, 2.34, 1e-3, name, 8, 20, Place(0, window)),
        ),
        rivals=(
            Rival(("window-one-short-in-prefill",), "one at a time from 2", 0.98765, 2345.6),
            Rival(name, "nowhere", 0.99, 9.0),
        ),
        spans=(Span("prefill", 7, 8), Span("decode", 8, 8)),
        kinds={"local": True, "global": False},
        problems={},
        declined={},
        stuck=None,
    )


def test_a_named_fault(named: Diagnosis) -> None:
    feed = named.findings[1].probe.feed.describe()
    assert list(diagnosis_lines("vllm", "plamo3", named)) == [
        "vllm on 4k: window-one-short: explains all 2 probes that differ, of 3",
        "  window-one-short: Local layers see one token too few. (mask; docs/plamo3.md §6)",
        "    without it 1.23e+05 times the noise is left, with it 2.34",
        "  window: in prefill, the last query of a local layer sees 7 tokens, but should see 8",
        "  window: in decode, the last query of a local layer sees 8 tokens, as it should",
        f"  starts: beyond the window ({feed}), at row 0 position {named.findings[1].first_bad.position}, "  # type: ignore[union-attr]
        "which is W+1; 9 of 20 positions differ",
        "  models of one layer: local differs, global conforms",
        "  error / noise, largest of each kind of run:",
        "    prefill:          1.23e+05 from the reference, 1 of 2 probes differ; "
        "1.96 from the reference with window-one-short",
        "    decode:           2.35e+03 from the reference, 1 of 1 probes differ; "
        "2.34 from the reference with window-one-short",
        "  runner-up: window-one-short-in-prefill leaves 98.8 % of the difference, 2.35e+03 times the noise, "
        "of: one at a time from 2",
    ]


def test_a_tie(named: Diagnosis) -> None:
    tied = replace(named, ties=(("window-one-short-in-prefill", "window-one-short-in-decode"),))
    assert list(diagnosis_lines("vllm", "plamo3", tied))[3] == (
        "  or, which no run of this backend tells from it: "
        "window-one-short-in-prefill + window-one-short-in-decode"
    )


def plain(named: Diagnosis, status: str, **changes: Any) -> Diagnosis:
    right = tuple(replace(f, after=None, share=None, faults=(), bad=0, before=1.5) for f in named.findings)
    changes = {"findings": right, "named": (), "rivals": (), "spans": (), "kinds": {}} | changes
    return replace(named, status=status, **changes)


def test_a_backend_that_conforms(named: Diagnosis) -> None:
    found = plain(named, CONFORMS, declined={"crop": "refused: no"})
    assert list(diagnosis_lines("vllm", "plamo3", found)) == [
        "vllm on 4k: conforms: 3 probes, error / noise 1.5 at most (up to 8 is rounding)",
        "  declined, which counts for nothing: crop: refused: no",
    ]


def test_nothing_that_can_be_judged(named: Diagnosis) -> None:
    found = plain(named, UNJUDGED, findings=(), problems={"the first token": "died: gone"})
    assert list(diagnosis_lines("vllm", "plamo3", found)) == [
        "vllm on 4k: could not be judged: no probe gave logits",
        "  no logits of: the first token: died: gone",
    ]


def test_only_crashes(named: Diagnosis) -> None:
    found = plain(named, UNKNOWN, problems={"crop": "failed: no"})
    lines = list(diagnosis_lines("vllm", "plamo3", found))
    assert lines[0] == "vllm on 4k: unknown: 1 probes gave no logits, the others conform"
    assert lines[-1] == "  no logits of: crop: failed: no"
    assert "    decode:           1.5 from the reference: conforms" in lines


def test_what_is_unknown_says_what_came_nearest(named: Diagnosis) -> None:
    differing = tuple(replace(f, after=None, share=None, faults=()) for f in named.findings)
    found = replace(named, status=UNKNOWN, named=(), findings=differing, stuck="beyond the window")
    lines = list(diagnosis_lines("vllm", "plamo3", found))
    assert lines[0] == "vllm on 4k: unknown: 2 of 3 probes differ, and no set of known faults explains them"
    assert "    decode:           2.35e+03 from the reference, 1 of 1 probes differ" in lines
    assert "  no set of known faults explains the probe: beyond the window" in lines
    assert lines[-2:] == [
        "  nearest: window-one-short-in-prefill leaves 98.8 % of the difference, 2.35e+03 times the noise, "
        "of: one at a time from 2",
        "  nearest: window-one-short leaves 99 % of the difference, 9 times the noise, of: nowhere",
    ]


def test_phases_with_faults_of_their_own(named: Diagnosis) -> None:
    found = replace(named, named=(), by_phase={"prefill": (), "decode": ("decode-position-one-late",)})
    lines = list(diagnosis_lines("vllm", "plamo3", found))
    assert (
        lines[0] == "vllm on 4k: another set of faults in each phase: explains all 2 probes that differ, of 3"
    )
    assert lines[1] == "  decode alone: decode-position-one-late"


def test_the_same_as_json(named: Diagnosis) -> None:
    data = json.loads(json.dumps(diagnosis_data("vllm", "plamo3", named)))
    assert data["faults"] == [
        {
            "id": "window-one-short",
            "what": "Local layers see one token too few.",
            "part": "mask",
            "section": "docs/plamo3.md §6",
            "ratio_without": 123456.0,
            "ratio_with": 2.34,
        }
    ]
    assert (data["status"], data["release"], data["stuck"]) == ("named", "4k", None)
    assert data["window"] == {
        "prefill": {"seen": 7, "expected": 8},
        "decode": {"seen": 8, "expected": 8},
    }
    probe = data["probes"][1]
    assert (probe["name"], probe["phase"], probe["bad"]) == ("beyond the window", "prefill", 9)
    assert (probe["ratio"], probe["ratio_with_faults"]) == (123456.0, 1.96)
    assert data["rivals"][0]["share_left"] == 0.98765


def test_json_has_no_infinity(named: Diagnosis) -> None:
    broken = replace(named, findings=(replace(named.findings[0], before=np.inf),))
    text = json.dumps(diagnosis_data("vllm", "plamo3", broken), allow_nan=False)
    assert json.loads(text)["probes"][0]["ratio"] is None


def test_probes_with_one_problem_are_told_together(named: Diagnosis) -> None:
    problems = {**{f"probe {n}": "failed: no" for n in range(6)}, "reset": "died: gone"}
    lines = list(diagnosis_lines("vllm", "plamo3", replace(named, problems=problems)))
    assert lines[-2:] == [
        "  no logits of: probe 0, probe 1, probe 2, probe 3, and 2 more: failed: no",
        "  no logits of: reset: died: gone",
    ]
