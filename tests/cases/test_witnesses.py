"""No vacuous pass: a case whose trial lacks its subject is an error, though every claim holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import cells
from conformance.backends.registry import Backend
from conformance.case import Case, Trial
from conformance.cells import Cell, CellResult, judge
from conformance.checkpoints.store import read_spec
from conformance.families.base import GLOBAL
from conformance.feeds import Feed, Forward
from conformance.trials import deal
from conformance.workers.host import Hello
from tests import toys
from tests.cases.chapters import all_cases
from tests.inline import InlineSession

Removal = Callable[[Trial], Trial]

# Wide enough for the published split, 3-6-3, in a row of 2W + 1 tokens.
LIMITS = {"window_size": {"one_of": [6]}}
# The toy is the same function in training mode, which is what was published of 4k.
RELEASES = {"published/training": "4k"}


class Sighted(toys.Toy):
    """A toy that sees as many tokens as the release's layers do."""

    def prepare(self, checkpoint: Path) -> tuple[int, int]:
        spec = read_spec(checkpoint)
        return spec.vocab_size, 10**6 if spec.layer_kinds == (GLOBAL,) else spec.window_span


def first(columns: Callable[[int], int]) -> Removal:
    """A row of so many tokens, given W."""
    return lambda trial: replace(trial, drawn=trial.drawn.first(columns(trial.spec.window_size)))


def window(size: Callable[[Trial], int]) -> Removal:
    """A model with another window."""

    def remove(trial: Trial) -> Trial:
        return replace(trial, spec=replace(trial.spec, window_size=size(trial)))  # type: ignore[type-var]

    return remove


def first_rows(count: int) -> Removal:
    return lambda trial: replace(trial, drawn=replace(trial.drawn, tokens=trial.drawn.tokens[:count]))


def one_row_repeated(trial: Trial) -> Trial:
    feed = trial.drawn
    return replace(trial, drawn=replace(feed, tokens=feed.tokens[:1] * feed.batch))


def one_dtype(trial: Trial) -> Trial:
    return replace(trial, drawn=replace(trial.drawn, dtype="bfloat16"))


def unsplit(trial: Trial) -> Trial:
    feed, _ = trial.drawn
    return replace(trial, drawn=(feed, (feed.width,)))


def split_up_to_the_window(trial: Trial) -> Trial:
    feed, _ = trial.drawn
    short = feed.first(2 * trial.spec.window_size + 1)
    return replace(trial, drawn=(short, (1, short.width - 1)))


def two_layers(trial: Trial) -> Trial:
    return replace(trial, spec=replace(trial.spec, num_hidden_layers=2))  # type: ignore[type-var]


def one_token_more(trial: Trial) -> Trial:
    (row,) = trial.drawn.tokens
    return replace(trial, drawn=Feed(tokens=((*row, row[0]),), steps=(Forward(len(row) + 1),)))


one_token = first(lambda w: 1)
window_of_one = window(lambda trial: 1)
window_over_the_row = window(lambda trial: trial.drawn.width)

PADDED = {
    "rows were unequal": first_rows(1),
    "a row longer than the window was short of the others": window_over_the_row,
}
PROBED = {
    "one layer was probed": two_layers,
    "tokens beyond the window were changed": first(lambda w: w + 2),
}

# Case → witness → what takes the subject away.
REMOVALS: dict[str, dict[str, Removal]] = {
    "batch/rows": {
        "several rows were fed together": first_rows(1),
        "neighbours were exchanged": one_row_repeated,
    },
    "batch/left-padding": PADDED,
    "batch/right-padding": PADDED,
    "batch/ragged": PADDED,
    "batch/decode": {
        "several rows were decoded together": first_rows(1),
        "decode went round a ring of W": first(lambda w: 2 * w),
    },
    "batch/ragged-decode": {"a row ended while the others were decoded on": first_rows(1)},
    "cache/crop": {"the cache held what was cut": window(lambda trial: 2)},
    "cache/crop-wrapped": {"the window had moved on": first(lambda w: w + 4)},
    "cache/reset": {"the cache was full when it was emptied": first(lambda w: w + 3)},
    "cache/reorder": {"the rows differed": one_row_repeated},
    "cache/reorder-padded": {"rows of unequal length lay in the cache": first(lambda w: 1)},
    "decode/token-by-token": {
        "decode began before and after the window": window_of_one,
        "decode went twice round a ring of W": first(lambda w: 2 * w + 2),
    },
    "load/matrix": {"the window was crossed": first(lambda w: w)},
    "positions/shift": {"several positions began elsewhere than at 0": one_token},
    "positions/reset": {"positions restarted inside the row": one_token},
    "positions/gaps": {"positions had gaps": first(lambda w: 2)},
    "positions/packed": {"the second row crossed the window": first(lambda w: w)},
    "positions/packed-cached": {"the second row began before the last chunk": first(lambda w: 3)},
    "precision/bf16": {
        "the window was crossed": first(lambda w: w),
        "FP32 stood beside BF16": one_dtype,
    },
    "precision/bf16-decode": {"decode went round a ring of W": first(lambda w: 2 * w)},
    "prefill/split": {
        "the sequence was split": unsplit,
        "several tokens came on top of a full window": split_up_to_the_window,
    },
    "published/cache": {"the published length was fed": one_token_more},
    "published/training": {"every published length was trained": first(lambda w: w + 1)},
    "reference/whole": {"the window was crossed": first(lambda w: w)},
    "reference/long": {"positions beyond 256 were fed": first(lambda w: 256)},
    "thresholds/length": {"lengths on both sides of 8, 16, 32 and 64 were fed": first(lambda w: 33)},
    "thresholds/cache": {"the cache grew beyond 64 tokens in every way": first(lambda w: 65)},
    "thresholds/batch": {"batches from 1 to 9 were fed": first_rows(4)},
    "training/padded": {"a row was padded": one_token},
    "training/packed": {"two rows were packed": one_token},
    "training/mask": {"lengths from 1 to beyond W + 1 were trained": first(lambda w: w + 1)},
    "window/local-prefill": PROBED,
    "window/local-decode": PROBED,
    "window/global-prefill": PROBED,
    "window/global-decode": PROBED,
    "window/causality": {"tokens before and beyond the window were changed": first(lambda w: w + 1)},
}
EVERY_REMOVAL = [(case, witness) for case, removals in REMOVALS.items() for witness in removals]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case, Trial], CellResult]:
    """Judges one trial of a case on an engine that is right."""
    engine = Sighted({})

    def judged(what: Case, trial: Trial) -> CellResult:
        monkeypatch.setattr(cells, "deal", lambda *_: [trial])
        backend = Backend(name="right", title="", release_code=trial.release)
        hello = Hello((trial.release,), engine.capabilities, engine.dtypes, {})
        session = InlineSession(Sighted({}), {"right": engine})
        cell = Cell(what, backend, "plamo3", trial.release)
        return judge(session, cell, hello, (), examples=1, checkpoints=tmp_path)

    return judged


def trial_of(case_id: str) -> Trial:
    return deal(all_cases()[case_id], "plamo3", RELEASES.get(case_id, "2604"), LIMITS, 1)[0]


def test_every_case_has_an_entry() -> None:
    assert sorted(REMOVALS) == sorted(all_cases())


@pytest.mark.parametrize("case_id", all_cases())
def test_with_its_subject_a_case_passes_what_is_right(
    case_id: str, judged: Callable[[Case, Trial], CellResult]
) -> None:
    result = judged(all_cases()[case_id], trial_of(case_id))
    assert (result.status, result.reason, result.findings) == ("pass", "", [])
    # Every witness has an entry above; a new one needs one, too.
    assert result.witnesses == dict.fromkeys(REMOVALS[case_id], 1)


@pytest.mark.parametrize(("case_id", "witness"), EVERY_REMOVAL)
def test_without_its_subject_a_case_is_an_error(
    case_id: str, witness: str, judged: Callable[[Case, Trial], CellResult]
) -> None:
    what, bare = all_cases()[case_id], REMOVALS[case_id][witness](trial_of(case_id))
    missing = [seen.name for seen in what.plan(bare).witnesses if not seen.held]
    assert witness in missing
    result = judged(what, bare)
    assert result.findings == []
    assert (result.status, result.reason) == ("error", f"no witness: {missing[-1]}")
    assert result.witnesses[witness] == 0
