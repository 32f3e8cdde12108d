"""The project's own goldens: whole, small, agreed on, and telling.

Everything runs in this process. That the reference holds them, and that other implementations can make
goldens, is shown with real workers in tests/cli/test_golden.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import real_cells
from conformance.compare.verdict import Grade, Verdict, compare
from conformance.families import family_of
from conformance.faults import VALUES, Fault, faults_of
from conformance.goldens.store import Golden, golden_directory, read_goldens
from conformance.goldens.trials import check_fixed_set, golden_trials
from conformance.goldens.verify import verify
from conformance.workers.adapter import Adapter
from tests import adapters
from tests.goldens.sessions import GoldenSession, session_of

LIMIT = 2_000_000  # bytes of the whole directory
TRIALS = {trial.id: trial for trial in golden_trials()}
# The rest of the bank needs what no golden has: batches, padding, segments, cache operations, training.
BANK = [
    fault
    for fault in faults_of("plamo3").FAULTS
    if fault.reveals == VALUES
    and any(fault.applies(t.model.spec, t.feed) for t in TRIALS.values() if t.model.spec.family == "plamo3")
]


@cache
def goldens() -> Mapping[str, Golden]:
    return read_goldens(golden_directory())


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def session() -> GoldenSession:
    return session_of(
        adapters.WindowPlusOne,
        adapters.OffsetForgotten,
        adapters.GroupsTiled,
        adapters.AmplitudeDropped,
        adapters.QueryNormSkippedLocally,
        adapters.Untouched,
        reference=ReferenceAdapter,
    )


def verdicts(session: GoldenSession, name: str, checkpoints: Path, of: str = "") -> dict[str, Verdict]:
    """The verdict of every golden that applies, of those whose id matches a pattern."""
    chosen = [golden for golden in goldens().values() if re.search(of, golden.id)]
    results = verify(session, name, chosen, checkpoints)
    return {result.id: result.verdict for result in results if result.verdict is not None}


def test_they_are_the_fixed_set() -> None:
    check_fixed_set(goldens())


def test_they_are_small() -> None:
    files = [path.stat().st_size for path in golden_directory().rglob("*") if path.is_file()]
    assert len(files) == len(goldens()) + 1
    assert sum(files) < LIMIT


@pytest.mark.parametrize("name", TRIALS)
def test_a_pedigree_is_whole(name: str) -> None:
    golden = goldens()[name]
    producer = golden.producer
    assert {"backend", "code", "versions", "numerics", "platform"} <= set(producer)
    assert producer["versions"]
    assert golden.command.startswith("conformance golden record ")
    assert golden.logits.shape == (*np.shape(golden.feed.tokens), golden.spec.vocab_size)
    assert np.isfinite(golden.logits).all()


@pytest.mark.parametrize("name", TRIALS)
def test_another_implementation_agreed(name: str) -> None:
    golden = goldens()[name]
    agreed = {agreement.backend: agreement for agreement in golden.agreed}
    others = set(agreed) - {golden.producer["backend"]}
    assert others & {"plamo3-2604", "plamo3-4k", "gemma4-eager", "gemma4-sdpa", "vllm"}
    for agreement in golden.agreed:
        assert agreement.grade in ("exact", "rounding")
        assert 0 <= agreement.ratio <= 8
        assert agreement.code
        assert agreement.versions


def test_vllm_agreed_to_what_it_can_be_asked_of_the_releases_that_it_implements() -> None:
    agreed = {name for name, golden in goldens().items() if "vllm" in {a.backend for a in golden.agreed}}
    assert agreed == {name for name in goldens() if name.startswith(("plamo3-2604-telling-", "gemma4-"))}


def test_whole_and_decode_are_one_meaning() -> None:
    for name, whole in goldens().items():
        if "-whole-" in name:
            decode = goldens()[name.replace("-whole-", "-decode-")]
            assert decode.feed.meaning() == whole.feed
            assert decode.weights == whole.weights


@pytest.mark.parametrize(
    ("adapter", "releases"),
    [
        ("WindowPlusOne", ("2604",)),
        ("OffsetForgotten", ("2604", "4k")),
        ("GroupsTiled", ("2604", "4k")),
        ("AmplitudeDropped", ("2604",)),
        ("QueryNormSkippedLocally", ("2604", "4k")),
    ],
)
def test_one_thing_broken_fails_every_telling_golden_in_fp32(
    session: GoldenSession, checkpoints: Path, adapter: str, releases: tuple[str, ...]
) -> None:
    found = verdicts(session, adapter, checkpoints, "^plamo3-.*-telling-.*-float32$")
    assert {name: v.grade for name, v in found.items()} == {
        f"plamo3-{release}-telling-{how}-float32": Grade.DIVERGENT
        for release in releases
        for how in ("whole", "decode")
    }


def test_the_same_motions_without_a_change_pass(session: GoldenSession, checkpoints: Path) -> None:
    found = verdicts(session, "Untouched", checkpoints, "-whole-")
    assert len(found) == len(goldens()) / 2
    assert all(verdict.grade.passes for verdict in found.values())


# Every fault of the bank


class Judge:
    """PLaMo 3's telling goldens with their noise, measured once; quick ones that see most come first."""

    def __init__(self, session: GoldenSession, checkpoints: Path) -> None:
        telling = [g for name, g in goldens().items() if name.startswith("plamo3-") and "-telling-" in name]
        self.goldens = sorted(telling, key=lambda g: (g.feed.dtype != "float32", len(g.feed.steps)))
        self.checkpoints = {
            golden.id: write_checkpoint(checkpoints, golden.spec, golden.seed, golden.layout)
            for golden in self.goldens
        }
        self.noise = {
            golden.id: session.truth(self.checkpoints[golden.id], golden.feed).result().noise
            for golden in self.goldens
        }

    def passed(self, adapter: Adapter, golden: Golden) -> bool:
        checkpoint: Checkpoint = self.checkpoints[golden.id]
        logits = adapter.run(adapter.prepare(checkpoint.path), golden.feed)
        cells = real_cells(golden.feed)
        return compare(logits, golden.logits, self.noise[golden.id], cells, golden.feed.dtype).grade.passes


@pytest.fixture(scope="module")
def judge(session: GoldenSession, checkpoints: Path) -> Judge:
    return Judge(session, checkpoints)


@pytest.mark.parametrize("fault", BANK, ids=lambda fault: fault.id)
def test_a_fault_that_can_show_in_a_golden_does(judge: Judge, fault: Fault) -> None:
    """For each release by itself: goldens that were made right find who does it wrong."""
    adapter = FaultyAdapter({"faults": [fault.id]})
    for release in family_of("plamo3").releases:
        own = [golden for golden in judge.goldens if golden.spec.release == release.name]
        able = [golden for golden in own if fault.applies(golden.spec, golden.feed)]
        assert not able or not all(judge.passed(adapter, golden) for golden in able)
