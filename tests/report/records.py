"""Judged cells made by hand, as records: one of each status."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.backends.registry import Backend
from conformance.case import Case, Trial, case
from conformance.cells import Cell, CellResult, Finding
from conformance.checkpoints.store import Checkpoint
from conformance.claims import Matches, Outcome, Plan
from conformance.compare.verdict import Grade, Place, Verdict
from conformance.deviations import Prediction, Refusal
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.faults import faults_of, find
from conformance.feeds import Feed, Forward
from conformance.predictions import Predicted, Standing
from conformance.report.record import record_of
from conformance.strategies import feeds

SPEC = Plamo3Spec(
    vocab_size=97,
    hidden_size=48,
    num_hidden_layers=2,
    intermediate_size=56,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    window_size=4,
    max_position_embeddings=262_144,
    rope_scaling_factor=16.0,
)
FEED = Feed(tokens=((1, 2, 3, 4, 5, 6),), steps=(Forward(6),))
DIVERGENT = Verdict(
    Grade.DIVERGENT,
    compared=6,
    ratio=1234.5,
    max_abs=0.25,
    mean_abs=0.01,
    max_ulp=99.0,
    max_relative=0.125,
    max_kl=0.5,
    flips=1,
    near_ties=2,
    shift=None,
    first_bad=Place(0, 5),
    worst=Place(0, 5),
    bad=1,
)
DEAD = Verdict(Grade.ERROR, problem="died: exited with code 11 during run")
KNOWN = Prediction(
    backend="mine",
    release="2604",
    faults=(find(faults_of("plamo3").FAULTS, "reset-ignored"),),
    what="it forgets",
    evidence="docs/plamo3.md §7",
    date=datetime.date(2026, 1, 31),
    versions=(("engine", ">=1"),),
    source="mine.toml entry 1",
)
DECLINED = Refusal(
    backend="mine",
    release="2604",
    case=("decode/*",),
    claims=("reference", "whole*"),
    error="failed: *",
    what="it has no kernel",
    evidence="docs/plamo3.md §3",
    date=datetime.date(2026, 1, 31),
    versions=(("engine", ">=1"), ("engine-cpu", "==2.*")),
    source="mine.toml entry 2",
)
UNMET = Predicted(Standing.UNMET, (KNOWN,), KNOWN.ids, Verdict(Grade.DIVERGENT, ratio=230.4))


def law(case_id: str) -> Case:
    made = case(
        case_id, law=f"the law of {case_id}", draws=lambda spec: feeds(spec, min_width=6, max_width=6)
    )
    return made(lambda trial: Plan((), ()))


def cell_of(case_id: str, backend: str = "mine", release: str = "2604") -> Cell:
    return Cell(law(case_id), Backend(name=backend, title=""), "plamo3", release)


def finding_of(verdict: Verdict, *, brought: bool = False, predicted: Predicted | None = None) -> Finding:
    claim = Matches("reference", FEED)
    text = f"{FEED.describe()} vs the reference"
    outcome = Outcome("reference", False, verdict, text, predicted=predicted)
    checkpoint = Checkpoint(Path("/c/abcd"), SPEC, "abcd", None if brought else 7)
    return Finding(Trial(SPEC, 7, FEED), checkpoint, claim, outcome)


PASSED = CellResult("pass", trials=2, claims=6, witnesses={"it was split": 2}, worst=1.26, grade="rounding")
EQUAL = replace(PASSED, worst=0.0, grade="exact")
REFUSED = replace(EQUAL, claims=2, refused=2)
FAILED = CellResult(
    "fail",
    "1 of 6 claims failed",
    trials=2,
    claims=6,
    worst=1234.5,
    grade="divergent",
    findings=[finding_of(DIVERGENT)],
)
BROKEN = CellResult(
    "error", "1 of 6 claims failed", trials=2, claims=6, grade="error", findings=[finding_of(DEAD)]
)
UNSEEN = CellResult(
    "error", "no witness: the window was crossed", trials=2, claims=6, worst=1.0, grade="rounding"
)
EXPECTED = CellResult(
    "known", "it forgets", trials=1, claims=3, worst=150.0, grade="divergent", explained={KNOWN: 1.26}
)
LACKING = CellResult("n/a", "no crop, decode")
GONE = CellResult(
    "fail",
    "deviation gone: mine.toml entry 1 (reset-ignored) does not show in 'reference'; remove it",
    1,
    3,
    worst=1.0,
)


def record(
    result: CellResult, case_id: str = "decode/law", backend: str = "mine", **more: Any
) -> dict[str, Any]:
    nodeid = f"cases/test_decode.py::law[{backend}-2604]"
    return record_of(cell_of(case_id, backend), result, nodeid, **more)
