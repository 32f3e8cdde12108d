"""Feeds of the study: of every kind, and the same every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.calibration.subjects import (
    DTYPES,
    ROWS,
    SAME_TEXT,
    WIDTH,
    Subject,
    engine_feeds,
    fault_feeds,
    subjects,
)
from conformance.checkpoints.store import Checkpoint
from conformance.families import family_of
from conformance.faults import NOTHING, faults_of
from conformance.feeds import CAPABILITIES
from conformance.limits import violation


@pytest.fixture(scope="module")
def subject(checkpoint: Checkpoint) -> Subject:
    return Subject("2604", 1, checkpoint)


class TestEngineFeeds:
    def test_they_are_the_same_every_time(self, subject: Subject) -> None:
        assert engine_feeds(subject) == engine_feeds(subject)
        assert engine_feeds(subject)["whole"] != engine_feeds(replace(subject, number=2))["whole"]

    def test_the_same_text_is_the_same_text(self, subject: Subject) -> None:
        feeds = engine_feeds(subject)
        for name, rows in SAME_TEXT.items():
            assert feeds[name].tokens == feeds["whole"].tokens[rows], name
            assert feeds[name] != feeds["whole"], name

    def test_what_they_exercise(self, subject: Subject) -> None:
        feeds = engine_feeds(subject)
        asked = frozenset().union(*(feed.requires for feed in feeds.values()))
        assert asked == {"batch", "decode", "chunked", "left-padding", "ragged", "positions"}
        assert (feeds["whole"].batch, feeds["whole"].width) == (ROWS, WIDTH)
        assert len({token for row in feeds["three tokens"].tokens for token in row}) == 3
        assert next(iter(feeds)) == "long"

    def test_unequal_rows_are_unequal(self, subject: Subject) -> None:
        lengths = engine_feeds(subject)["ragged"].lengths
        assert lengths is not None
        assert len(set(lengths)) == ROWS


class TestFaultFeeds:
    def test_together_they_ask_for_every_capability_but_ragged_rows(self, subject: Subject) -> None:
        asked = frozenset().union(*(feed.requires for feed in fault_feeds(subject).values()))
        assert asked == frozenset(CAPABILITIES) - {"ragged"}

    def test_every_fault_can_show_on_one_of_them_on_some_model(self, tmp_path: Path) -> None:
        family = family_of("plamo3")
        models = [s for r in family.releases for s in subjects("plamo3", r.name, [{}], 2, tmp_path)]
        specs = {(of.spec, of) for of in models}
        specs |= {(variant.spec, of) for of in models for variant in family.layouts(of.spec)}
        feeds = {of: fault_feeds(of) for of in models}
        hidden = [
            fault.id
            for fault in faults_of("plamo3").FAULTS
            if fault.reveals != NOTHING
            and not any(
                fault.applies(spec, replace(feed, dtype=dtype))
                for spec, of in specs
                for feed in feeds[of].values()
                for dtype in DTYPES
            )
        ]
        assert not hidden

    def test_rows_have_gaps_of_their_own(self, subject: Subject) -> None:
        positions = fault_feeds(subject)["gaps"].positions
        assert positions is not None
        assert len({row[1] - row[0] for row in positions}) == len(positions)


class TestSubjects:
    def test_shares_keep_the_limits(self, tmp_path: Path) -> None:
        narrow = {"head_dim": {"one_of": [32]}}
        found = subjects("plamo3", "2604", [{}, narrow, {}], 4, tmp_path)
        assert [of.number for of in found] == [1, 2, 3, 4]
        assert all(violation(of.spec.to_dict(), narrow) is None for of in found[2:])

    def test_they_are_the_models_of_the_cases(self, tmp_path: Path) -> None:
        from conformance.trials import models

        found = subjects("plamo3", "4k", [{}], 2, tmp_path)
        assert [(of.spec, of.checkpoint.seed) for of in found] == list(models("plamo3", "4k", {}, 2))
