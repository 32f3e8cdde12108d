"""Plans of every case, on every window that models are drawn with: valid, telling, and as declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.case import Trial
from conformance.claims import Agree, Claim, Plan, Span, Still, WindowSpan, align, real_cells, span_cells
from conformance.feeds import Feed, parse_feed
from conformance.trials import deal
from tests.cases.chapters import RELEASES, all_cases, feeds_of

T = TypeVar("T")

WINDOWS = range(3, 8)
MODELS = 2

Planned = tuple[Trial, Plan]


def planned(case_id: str, release: str) -> Iterator[Planned]:
    """Trials of a case and their plans, for every window."""
    what = all_cases()[case_id]
    for window in WINDOWS:
        for trial in deal(what, "plamo3", release, {"window_size": {"one_of": [window]}}, MODELS):
            yield trial, what.plan(trial)


EVERY = [(case_id, release) for case_id in all_cases() for release in RELEASES]


@pytest.fixture(scope="module", params=EVERY, ids=[f"{case_id} {release}" for case_id, release in EVERY])
def subject(request: pytest.FixtureRequest) -> tuple[str, list[Planned]]:
    """A case's id, and its plans for one release."""
    case_id, release = request.param
    return case_id, list(planned(case_id, release))


def plans(subject: tuple[str, list[Planned]]) -> list[Planned]:
    found = subject[1]
    assert found
    return found


def test_models_of_every_window_are_dealt(subject: tuple[str, list[Planned]]) -> None:
    windows = {trial.spec.window_size for trial, _ in plans(subject)}
    fixed = all_cases()[subject[0]].fixed is not None
    assert windows == ({4} if fixed else set(WINDOWS))


def test_every_witness_is_held_and_something_is_claimed(subject: tuple[str, list[Planned]]) -> None:
    for _, plan in plans(subject):
        assert plan.claims
        assert plan.witnesses
        assert [seen.name for seen in plan.witnesses if not seen.held] == []


def test_labels_are_unique(subject: tuple[str, list[Planned]]) -> None:
    for _, plan in plans(subject):
        labels = [claim.label for claim in plan.claims]
        assert len(set(labels)) == len(labels)
        assert all(label and label == label.strip() for label in labels)


def test_labels_do_not_depend_on_what_is_drawn(subject: tuple[str, list[Planned]]) -> None:
    """Deviation files name claims by label; window and variant alone may decide which labels there are."""
    found: dict[tuple[int, str], set[tuple[str, ...]]] = {}
    for trial, plan in plans(subject):
        labels = tuple(claim.label for claim in plan.claims)
        found.setdefault((trial.spec.window_size, trial.variant), set()).add(labels)
    assert [kind for kind, labels in found.items() if len(labels) > 1] == []


def test_feeds_ask_for_what_the_case_needs_and_no_more(subject: tuple[str, list[Planned]]) -> None:
    what = all_cases()[subject[0]]
    feeds = [feed for _, plan in plans(subject) for feed in feeds_of(plan.claims)]
    assert frozenset().union(*(feed.requires for feed in feeds)) == what.needs
    assert {feed.dtype for feed in feeds} == what.dtypes


def test_feeds_fit_their_model(subject: tuple[str, list[Planned]]) -> None:
    for trial, plan in plans(subject):
        for feed in feeds_of(plan.claims):
            assert all(0 <= token < trial.spec.vocab_size for row in feed.tokens for token in row)
            assert feed.width <= trial.spec.to_dict()["max_position_embeddings"]
            assert parse_feed(feed.to_dict()) == feed


def test_the_simplest_feed_has_a_plan(subject: tuple[str, list[Planned]]) -> None:
    """Runs leave it out, for it shows little; shrinking comes to it."""
    what = all_cases()[subject[0]]
    for trial, plan in {(t.spec.window_size, t.variant): (t, plan) for t, plan in plans(subject)}.values():
        again = what.plan(replace(trial, drawn=simplest(what.draws(trial.spec))))
        assert [claim.label for claim in again.claims] == [claim.label for claim in plan.claims]


def simplest(strategy: st.SearchStrategy[T]) -> T:
    """The example that hypothesis begins with: as few and as small values as there can be."""
    examples: list[T] = []

    @settings(
        max_examples=1,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        examples.append(example)

    collect()
    return examples[0]


def test_claims_compare_what_can_be_compared(subject: tuple[str, list[Planned]]) -> None:
    for trial, plan in plans(subject):
        for claim in plan.claims:
            check(claim, trial)


def check(claim: Claim, trial: Trial) -> None:
    """A claim's own arguments belong together."""
    assert claim.feeds
    assert set(claim.truths) <= set(claim.feeds)
    match claim:
        case Agree(feed=feed, other=other, pairs=None):
            assert (feed.lengths, feed.padding, feed.tokens) == (other.lengths, other.padding, other.tokens)
        case Agree(feed=feed, other=other, pairs=pairs):
            theirs = tuple(span for _, span in pairs or ())
            assert tokens_at(feed, tuple(span for span, _ in pairs or ())) == tokens_at(other, theirs)
            assert not span_cells(other, theirs)[~real_cells(other)].any()
            align(real_cells(other), feed, pairs or ())
        case Still(feed=feed, changed=changed, spans=spans):
            assert changed != feed
            assert span_cells(feed, spans).any()
            for span in spans:
                assert changed.tokens[span.row][: span.stop] == feed.tokens[span.row][: span.stop]
        case WindowSpan(feed=feed, changed=changed, expected=expected):
            assert 0 < expected <= feed.width
            assert trial.spec.num_hidden_layers == 1
            assert len(changed) >= min(feed.width, expected + 1)
            for back, other in enumerate(changed):
                assert differing(feed, other) == [(0, feed.width - 1 - back)]


def tokens_at(feed: Feed, spans: tuple[Span, ...]) -> list[tuple[int, ...]]:
    return [feed.tokens[span.row][span.start : span.stop] for span in spans]


def differing(feed: Feed, other: Feed) -> list[tuple[int, int]]:
    return [
        (row, column)
        for row in range(feed.batch)
        for column in range(feed.width)
        if feed.tokens[row][column] != other.tokens[row][column]
    ]
