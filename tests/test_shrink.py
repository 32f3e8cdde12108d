"""Shrinking: a planted fault ends on the smallest model and a short feed, and always the same."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.backends.registry import Backend
from conformance.case import Case
from conformance.cells import Cell, Finding, judge
from conformance.checkpoints.store import Checkpoint, open_checkpoint
from conformance.claims import Agree, Claim, Matches, Outcome, Plan, Still
from conformance.compare.noise import Truth
from conformance.compare.verdict import Grade, Place, Verdict
from conformance.deviations import Prediction
from conformance.faults import faults_of, find
from conformance.feeds import Crop, Feed, Forward
from conformance.judging import judge_plan
from conformance.predictions import Predictions, Standing, predictions_of
from conformance.runs import Session
from conformance.shrink import Budget, shorter, shrink
from conformance.workers.adapter import Adapter
from conformance.workers.host import Hello, WorkerError
from tests import adapters, toys
from tests.cases.chapters import all_cases
from tests.inline import InlineSession

# As --shrink has it by default.
MODELS = 40


@dataclass
class Bed:
    """One broken implementation on one case, and what was found there."""

    session: Session
    cell: Cell
    hello: Hello
    finding: Finding
    checkpoints: Path

    def shrink(self, budget: Budget | None = None) -> Finding:
        budget = budget or Budget(MODELS)
        return shrink(self.session, self.cell, self.finding, self.hello, self.checkpoints, budget)


Found = Callable[..., Bed]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Judges an adapter by a case; its first finding."""
    checkpoints = tmp_path_factory.mktemp("checkpoints")

    def found(
        broken: Adapter,
        case_id: str = "reference/whole",
        release: str = "2604",
        reference: Adapter | None = None,
        limits: dict[str, Any] | None = None,
        brought: Checkpoint | None = None,
        what: Case | None = None,
    ) -> Bed:
        oracle = reference or toys.Toy({})
        session = InlineSession(oracle, {"broken": broken})
        cell = Cell(what or all_cases()[case_id], Backend(name="broken", title=""), "plamo3", release)
        hello = Hello((release,), frozenset(broken.capabilities), tuple(broken.dtypes), limits or {})
        result = judge(session, cell, hello, (), examples=1, checkpoints=checkpoints, brought=brought)
        return Bed(session, cell, hello, result.findings[0], checkpoints)

    return found


@pytest.fixture(scope="module")
def forgetful(found: Found) -> Bed:
    """A decode that starts anew at every step."""
    return found(toys.Forgetful({}), "decode/token-by-token")


@pytest.fixture(scope="module")
def small(forgetful: Bed) -> Finding:
    """Its finding, shrunk."""
    return forgetful.shrink()


class Counting(toys.Forgetful):
    """Counts the models that it is given."""

    models = 0

    def prepare(self, checkpoint: Path) -> tuple[int, int]:
        self.models += 1
        return super().prepare(checkpoint)


def chunks(finding: Finding) -> tuple[int, ...]:
    return finding.claim.feeds[0].chunks


class TestPlantedFaults:
    """The oracle broken by one thing, on the oracle."""

    def test_a_window_off_by_one(self, found: Found) -> None:
        oracle = ReferenceAdapter({})
        bed = found(adapters.WindowPlusOne({}), reference=oracle)
        budget = Budget(MODELS)
        small = bed.shrink(budget)
        assert 0 < budget.models < MODELS  # the rest is for the next finding
        spec = small.trial.spec
        assert (spec.num_hidden_layers, spec.window_size) == (2, 3)
        assert spec.to_dict()["hidden_size"] <= bed.finding.trial.spec.to_dict()["hidden_size"]
        (feed,) = small.claim.feeds
        # One token more than the window: nothing comes before what is seen wrongly, and nothing after it.
        assert (feed.batch, feed.chunks) == (1, (spec.window_size + 1,))
        assert small.outcome.verdict.first_bad == Place(0, feed.width - 1)
        assert small.outcome.verdict.grade is Grade.DIVERGENT
        assert not small.outcome.holds

    def test_a_forgotten_offset_is_seen_on_a_single_token(self, found: Found) -> None:
        bed = found(adapters.OffsetForgotten({}), "batch/rows", "4k", reference=ReferenceAdapter({}))
        assert bed.finding.claim.label == "reference"
        small = bed.shrink()
        assert small.trial.spec.num_hidden_layers == 2
        (feed,) = small.claim.feeds
        assert (feed.batch, feed.width) == (1, 1)


class TestWhatIsKept:
    def test_the_claim_and_its_checkpoint(self, forgetful: Bed, small: Finding) -> None:
        assert type(small.claim) is type(forgetful.finding.claim)
        assert small.claim.label == forgetful.finding.claim.label
        assert small.checkpoint.spec == small.trial.spec
        assert small.checkpoint.seed == small.trial.seed
        assert small.outcome.label == small.claim.label

    def test_one_cut_is_enough(self, small: Finding) -> None:
        assert (small.trial.spec.num_hidden_layers, small.trial.spec.window_size) == (2, 3)
        assert len(chunks(small)) == 2

    def test_the_limits_of_the_backend(self, found: Found) -> None:
        limits = {"head_dim": {"one_of": [32]}, "window_size": {"min": 5}}
        small = found(toys.Forgetful({}), "decode/token-by-token", limits=limits).shrink()
        assert small.trial.spec.to_dict()["head_dim"] == 32
        assert small.trial.spec.window_size == 5

    def test_the_kind_of_model_that_the_case_asks_for(self, found: Found) -> None:
        small = found(toys.Forgetful({}), "window/local-decode").shrink()
        assert small.trial.spec.layer_kinds == ("local",)
        assert small.trial.spec.window_size == 3

    def test_it_is_the_same_every_time(self, found: Found, small: Finding) -> None:
        again = found(toys.Forgetful({}), "decode/token-by-token")
        assert again.shrink() == small

    def test_an_error_is_left_as_it_is(self, found: Found) -> None:
        """A crash has no first bad position, and a smaller one may crash for another reason."""
        bed = found(toys.Raises({}))
        assert bed.finding.outcome.verdict.grade is Grade.ERROR
        assert bed.shrink() is bed.finding

    def test_a_brought_model_is_kept_and_its_feed_shortened(
        self, found: Found, checkpoint: Checkpoint
    ) -> None:
        brought = open_checkpoint(checkpoint.path)
        bed = found(toys.Forgetful({}), "decode/token-by-token", brought=brought)
        small = bed.shrink()
        assert small.checkpoint == brought
        assert len(chunks(small)) < len(chunks(bed.finding))

    def test_so_is_one_of_the_variants_that_a_case_tries(self, found: Found) -> None:
        bed = found(Late({}), "load/matrix")
        small = bed.shrink()
        assert small.checkpoint == bed.finding.checkpoint
        assert small.claim.feeds[0].width < bed.finding.claim.feeds[0].width


class Late(toys.Toy):
    """Wrong from the third position on."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        logits = super().run(model, feed)
        logits[:, 2:] += 1
        return logits


class TestTheBudget:
    @pytest.mark.parametrize("models", [1, 20])
    def test_no_more_models_are_tried_than_it_holds(self, found: Found, models: int) -> None:
        broken = Counting({})
        bed = found(broken, "decode/token-by-token")
        broken.models = 0
        budget = Budget(models)
        bed.shrink(budget)
        assert budget.models == 0
        assert 0 < broken.models <= models

    def test_none_keeps_the_model_and_shortens_the_feed(self, forgetful: Bed) -> None:
        small = forgetful.shrink(Budget(0))
        assert small.checkpoint == forgetful.finding.checkpoint
        assert chunks(small) == (1, 1)

    def test_more_of_it_gives_no_larger_model(self, forgetful: Bed, small: Finding) -> None:
        found = (forgetful.finding, forgetful.shrink(Budget(20)), small)
        sizes = [(f.trial.spec.window_size, f.trial.spec.num_hidden_layers) for f in found]
        assert sizes == sorted(sizes, reverse=True)


def test_it_does_not_end_on_what_is_known(tmp_path: Path) -> None:
    """The recorded fault shows on shorter feeds than the one that was found."""
    faults = ("window-one-short", "window-missing-from-16-tokens")
    session = InlineSession(ReferenceAdapter({}), {"broken": FaultyAdapter({"faults": faults})})
    cell = Cell(all_cases()["reference/whole"], Backend(name="broken", title=""), "plamo3", "2604")
    hello = Hello(("2604",), frozenset(), ("float32",), {}, versions={"engine": "1.0"})
    recorded = Prediction(
        backend="broken",
        release="2604",
        faults=(find(faults_of("plamo3").FAULTS, "window-one-short"),),
        what="one token too few",
        evidence="docs/plamo3.md §6",
        date=datetime.date(2026, 1, 31),
        versions=(("engine", "==1.*"),),
        source="broken.toml entry 1",
    )
    result = judge(session, cell, hello, [recorded], examples=1, checkpoints=tmp_path)
    predictions = predictions_of([recorded], hello.versions)

    def shrunk(*known: Predictions) -> Finding:
        return shrink(session, cell, result.findings[0], hello, tmp_path, Budget(12), *known)

    assert shrunk().claim.feeds[0].width < 16
    small = shrunk(predictions)
    assert 16 <= small.claim.feeds[0].width < result.findings[0].claim.feeds[0].width
    plan = Plan((small.claim,), ())
    (outcome,) = judge_plan(session, "broken", small.checkpoint, plan, predictions)
    assert not outcome.holds
    assert outcome.predicted is not None
    assert outcome.predicted.standing is Standing.UNMET


def test_a_reference_that_dies_on_the_way(found: Found) -> None:
    """What was found before is not lost."""

    class Dying(InlineSession):
        truths = 0

        def truth(self, checkpoint: Checkpoint, feed: Feed, faults: tuple[str, ...] = ()) -> Future[Truth]:
            self.truths += 1
            if self.truths > 3:
                failed: Future[Truth] = Future()
                failed.set_exception(WorkerError("died", "exited with code 9 during run"))
                return failed
            return super().truth(checkpoint, feed, faults)

    bed = found(toys.Forgetful({}), "decode/token-by-token")
    bed.session = Dying(toys.Toy({}), {"broken": toys.Forgetful({})})
    small = bed.shrink()
    assert small.claim.label == bed.finding.claim.label
    assert not small.outcome.holds


ROW = Feed(tokens=((1, 2, 3, 4, 5, 6, 7, 8),), steps=(Forward(8),))
ROWS = replace(ROW, tokens=(*ROW.tokens, (8, 7, 6, 5, 4, 3, 2, 1)))


def candidates(claim: Claim, row: int = 0, position: int = 5) -> list[Claim]:
    verdict = Verdict(Grade.DIVERGENT, first_bad=Place(row, position))
    return list(shorter(claim, Outcome(claim.label, False, verdict, "")))


class TestShorterClaims:
    def test_nothing_after_the_first_bad_position(self) -> None:
        feeds = [claim.feeds[0] for claim in candidates(Matches("a", ROW))]
        assert ROW.first(6) in feeds

    def test_the_chunks_of_what_is_left_are_kept(self) -> None:
        feeds = [claim.feeds[0] for claim in candidates(Matches("a", ROW.split([3, 2, 2, 1])))]
        assert ROW.first(6).split([3, 2, 1]) in feeds

    def test_little_before_it(self) -> None:
        feeds = [claim.feeds[0] for claim in candidates(Matches("a", ROW.split([3, 2, 2, 1])), position=7)]
        tokens = ROW.tokens[0]
        assert [(f.tokens[0], f.chunks) for f in feeds if f.width < 8] == [
            (tokens[4:], (1, 2, 1)),
            (tokens[2:], (1, 2, 2, 1)),
            (tokens[1:], (2, 2, 2, 1)),
        ]

    def test_fewer_chunks(self) -> None:
        cut = ROW.split([2, 2, 4])
        feeds = [claim.feeds[0] for claim in candidates(Matches("a", cut), position=7)]
        assert [feed.chunks for feed in feeds if feed.width == 8] == [(8,), (7, 1), (1, 7)]

    def test_the_bad_row_alone(self) -> None:
        feeds = [claim.feeds[0] for claim in candidates(Matches("a", ROWS), row=1)]
        assert feeds[0].tokens == ((8, 7, 6, 5, 4, 3, 2, 1),)

    def test_both_sides_of_an_agreement(self) -> None:
        for claim in candidates(Agree("a", ROW.split([3]), ROW)):
            assert isinstance(claim, Agree)
            assert claim.other == claim.feed.whole()

    @pytest.mark.parametrize(
        "claim",
        [
            Matches("lengths", replace(ROW, lengths=(7,), padding="left")),
            Matches("positions", replace(ROW, positions=(tuple(range(8)),))),
            Matches("segments", replace(ROW, segments=((0,) * 8,))),
            Matches("steps", replace(ROW, steps=(Forward(4), Crop(2), Forward(4)))),
            Agree("spans", ROW, ROW, ()),
            Still("still", ROW, ROW, ()),
        ],
        ids=lambda claim: claim.label,
    )
    def test_what_is_tied_to_its_columns_is_left_alone(self, claim: Claim) -> None:
        assert candidates(claim) == []

    @pytest.mark.parametrize("position", range(8))
    def test_every_candidate_is_simpler(self, position: int) -> None:
        def size(feed: Feed) -> tuple[int, int, int]:
            return feed.batch, feed.width, len(feed.chunks)

        for feed in (ROW, ROWS, ROWS.split([3, 2, 2, 1]), ROW.token_by_token()):
            for claim in candidates(Matches("a", feed), position=position):
                assert claim.label == "a"
                (other,) = claim.feeds
                assert size(other) < size(feed)
