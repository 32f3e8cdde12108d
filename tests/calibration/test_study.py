"""The study from end to end, on one model of each release and three faults; and what it asks of engines."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from conformance.calibration.bank import effects
from conformance.calibration.evaluations import evaluate
from conformance.calibration.records import ALL_ORDERS, CONFORMING, OTHER_ORDERS, Records
from conformance.calibration.study import Plan, conforming, study
from conformance.calibration.subjects import Subject, engine_feeds, fault_feeds
from conformance.calibration.summary import alarms, reaches
from conformance.case import case_directory
from conformance.checkpoints.store import Checkpoint
from conformance.compare.verdict import ROUNDING
from conformance.deviations import read_deviations
from conformance.errors import BadInput
from conformance.workers.host import Hello

SELF = "conformance.backends.reference.adapter:ReferenceAdapter"
FAULTS = ("window-one-long", "head-padding-first", "mask-last-window-only-nan", "residual-in-float32")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Records:
    directory = tmp_path_factory.mktemp("checkpoints")
    plan = Plan("plamo3", (SELF,), directory, models=1, fault_models=1, processes=1, faults=FAULTS)
    return study(plan, lambda line: None)


class TestStudy:
    def test_a_run_that_is_among_those_of_the_noise_is_off_by_it_at_most(self, small: Records) -> None:
        groups = small.numbered()
        worst = {
            groups[total.group].feed: total.worst
            for total in small.totals
            if (groups[total.group].engine, groups[total.group].against) == (SELF, "float64")
        }
        assert worst["whole"] <= 1
        assert worst["decode"] != worst["whole"]  # other steps, other sums: not among them

    def test_it_is_judged_on_both_releases_by_all_orders(self, small: Records) -> None:
        groups = [group for group in small.groups if group.engine == SELF]
        assert {group.release for group in groups} == {"2604", "4k"}
        assert {group.noise for group in groups} == {ALL_ORDERS}
        assert {group.against for group in groups} == {"float64", "whole"}

    def test_orders_are_judged_by_other_orders(self, small: Records) -> None:
        orders = {
            g.engine: g.noise for g in small.groups if g.kind == CONFORMING and "reference, " in g.engine
        }
        assert {"reference, relabel:0", "reference, relabel:4", "reference, casts:wide"} <= set(orders)
        assert set(orders.values()) == {OTHER_ORDERS}

    def test_no_correct_evaluation_is_beyond_rounding(self, small: Records) -> None:
        for dtype in ("float32", "bfloat16"):
            events, positions = alarms(small, dtype, ROUNDING).positions
            assert events == 0
            assert positions > 5000

    def test_faults_are_tried_where_they_show(self, small: Records) -> None:
        found = {one.fault: one for one in reaches(small, "float32")}
        assert found["window-one-long"].least > ROUNDING
        assert math.isinf(found["mask-last-window-only-nan"].least)
        # Only a variant of the model has a head with padding.
        assert found["head-padding-first"].least > ROUNDING
        assert "residual-in-float32" not in found
        assert {one.fault: one for one in reaches(small, "bfloat16")}["residual-in-float32"].most <= ROUNDING

    def test_facts_say_what_ran(self, small: Records) -> None:
        assert small.facts["models"] == {"2604": 1, "4k": 1}
        assert small.facts["engines"][SELF]["releases"] == ["2604", "4k"]
        assert "torch" in small.facts["engines"][SELF]["versions"]


def test_an_engine_without_an_environment_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match="make it with: conformance env sync vllm"):
        study(Plan("plamo3", ("vllm",), tmp_path), lambda line: None)


def test_an_engine_that_fails_is_bad_input(tmp_path: Path) -> None:
    backend = "tests.toys:Raises"
    plan = Plan("plamo3", (backend,), tmp_path, models=1, fault_models=1, processes=1, faults=())
    with pytest.raises(BadInput, match="an engine that conforms should run it"):
        study(plan, lambda line: None)


def test_engines_with_a_recorded_difference_do_not_conform() -> None:
    names = ("plamo3-2604", "plamo3-4k", "vllm")
    claims = {"plamo3-2604": ("2604",), "plamo3-4k": ("4k",), "vllm": ("2604", "4k")}
    hellos = {name: Hello(claims[name], frozenset(), ("float32",), {}) for name in names}
    recorded = read_deviations(case_directory() / "deviations", names)
    assert conforming("plamo3", names, hellos, recorded) == {
        "2604": ["plamo3-2604", "vllm"],
        "4k": ["plamo3-4k"],
    }


class TestEvaluations:
    def test_noise_is_that_of_all_orders_and_truth_is_float64(self, checkpoint: Checkpoint) -> None:
        subject = Subject("2604", 1, checkpoint)
        whole = {"whole": engine_feeds(subject)["whole"]}
        found = evaluate(subject, whole)
        judged = found.judged["bfloat16", "whole"]
        assert judged.exact.dtype == np.float64
        assert judged.noise.shape == (4, 56)
        assert (judged.noise > 100 * found.judged["float32", "whole"].noise).all()
        assert {level.dtype for level in found.levels} == {"float32", "bfloat16"}


class TestBank:
    def test_the_feed_on_which_a_fault_shows_most_is_kept(self, checkpoint: Checkpoint) -> None:
        subject = Subject("2604", 1, checkpoint)
        feeds = {name: feed for name, feed in fault_feeds(subject).items() if name in ("whole", "decode")}
        (float32, bfloat16) = effects(subject, feeds, ["rope-missing"])
        assert (float32.dtype, bfloat16.dtype) == ("float32", "bfloat16")
        assert float32.feed in feeds
        assert float32.ratio > 1000 > float32.median / 1e6
        assert float32.ratio > 100 * bfloat16.ratio

    def test_where_it_cannot_show_there_is_nothing(self, checkpoint: Checkpoint) -> None:
        subject = Subject("2604", 1, checkpoint)
        whole = {"whole": fault_feeds(subject)["whole"]}
        assert effects(subject, whole, ["window-one-long-in-decode"]) == []
