"""`conformance triage`: a worker with a fault is told what it has; bad input is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.backends.reference.faulty import FaultyAdapter
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.cli.triage import _exit_code
from conformance.feeds import Feed, Forward
from conformance.trials import models
from tests.cli.conftest import Conformance
from tests.conftest import ROOT

FEED = Feed(tokens=((3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3),), steps=(Forward(16),))


@pytest.fixture
def triage(conformance: Conformance) -> Callable[..., tuple[int, str, str]]:
    Path("tests").symlink_to(ROOT / "tests")
    return lambda *arguments: conformance("triage", *arguments)


def test_a_worker_that_sees_one_token_too_many(triage: Conformance) -> None:
    code, out, err = triage("--backend", "tests.adapters:PlainWindowPlusOne", "--release", "2604")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith("tests.adapters:PlainWindowPlusOne on 2604: window-one-long: explains all ")
    assert lines[1].startswith("  window-one-long: ")
    assert lines[-1] == "  bundle: conformance replay build/triage/tests.adapters-PlainWindowPlusOne-2604"
    assert (Path("build/triage/tests.adapters-PlainWindowPlusOne-2604") / "bundle.json").is_file()


def test_a_worker_that_conforms(triage: Conformance) -> None:
    code, out, err = triage("--backend", "tests.adapters:Plain", "--family", "plamo3", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(one["release"], one["status"], one["bundle"]) for one in found] == [
        ("2604", "conforms", None),
        ("4k", "conforms", None),
    ]


@pytest.fixture
def report(tmp_path: Path) -> dict[str, str]:
    """What a user's report holds: logits of an implementation with one fault, the feed, the model."""
    ((spec, seed),) = models("plamo3", "4k", {}, 1)
    checkpoint: Checkpoint = write_checkpoint(tmp_path / "checkpoints", spec, seed)
    adapter = FaultyAdapter({"faults": ["window-one-short"]})
    np.save(tmp_path / "logits.npy", adapter.run(adapter.prepare(checkpoint.path), FEED))
    (tmp_path / "feed.json").write_text(json.dumps(FEED.to_dict()))
    return {
        "--logits": str(tmp_path / "logits.npy"),
        "--feed": str(tmp_path / "feed.json"),
        "--checkpoint": str(checkpoint.path),
    }


def words(report: dict[str, str], **changes: Any) -> list[str]:
    return [word for pair in (report | changes).items() for word in pair]


def test_a_file_of_logits_is_enough(triage: Conformance, report: dict[str, str]) -> None:
    code, out, err = triage(*words(report))
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].endswith("logits.npy on 4k: window-one-short: explains all 1 probes that differ, of 1")
    assert "  or, which no run of this backend tells from it: window-one-short-in-prefill" in lines
    assert not any("bundle:" in line for line in lines)


BAD = {
    "nothing to judge": (
        [],
        "conformance: triage needs either --backend NAME, or --logits FILE with --feed and a model\n",
    ),
    "both": (
        ["--backend", "reference", "--logits", "x.npy"],
        "conformance: triage needs either --backend NAME, or --logits FILE with --feed and a model\n",
    ),
    "an unknown release": (
        ["--backend", "tests.adapters:Plain", "--release", "5k"],
        "conformance: --release = '5k', but should be one that tests.adapters:Plain claims: "
        "2604, 4k, gemma-4\n",
    ),
    "an unknown backend": (
        ["--backend", "referense"],
        None,
    ),
    "logits without a model": (
        ["--logits", "x.npy", "--feed", "y.json"],
        "conformance: --logits needs either --checkpoint DIR or --spec config.json, but not both\n",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name: str, triage: Conformance) -> None:
    arguments, message = BAD[name]
    code, out, err = triage(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message is None or err == message
    assert not Path("build").exists()


def test_a_worker_that_does_not_start_could_not_be_judged(triage: Conformance) -> None:
    code, out, err = triage("--backend", "tests.toys:NoSuch")
    assert (code, out) == (2, "")
    assert err.startswith("tests.toys:NoSuch could not be judged: worker ")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["conforms", "conforms"], 0),
        (["conforms", "named"], 1),
        (["unjudged", "unknown"], 1),
        (["conforms", "unjudged"], 2),
    ],
)
def test_a_difference_counts_for_more_than_a_release_that_was_not_judged(
    statuses: list[str], code: int
) -> None:
    assert _exit_code([SimpleNamespace(status=status) for status in statuses]) == code  # type: ignore[misc]
