"""`conformance replay`: a bundle again, on its backend or another. The reference is a toy here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.backends import registry
from conformance.backends.registry import backend_named
from conformance.bundles import write_bundle
from conformance.cells import judge_plan
from conformance.checkpoints.store import Checkpoint
from conformance.claims import Agree, Plan
from conformance.cli import replay as replay_module
from conformance.compare.verdict import Grade, Verdict
from conformance.feeds import Feed, Forward
from conformance.runs import Session
from tests.cli.conftest import Conformance
from tests.conftest import ROOT

FEED = Feed(tokens=((3, 1, 4, 1, 5, 9, 2, 6, 5, 3),), steps=(Forward(10),))
CLAIM = Agree("whole: decode", FEED.token_by_token(4), FEED)
FORGETFUL = "tests.toys:Forgetful"


@pytest.fixture
def bundle(conformance: Conformance, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> str:
    """The directory of a bundle that Forgetful made, with a toy for the reference."""
    Path("tests").symlink_to(ROOT / "tests")
    toy = {"adapter": "tests.toys:Toy", "options": {"paths": [str(ROOT)]}}
    generic = [replace(b, **toy) if b.name == "reference" else b for b in registry._GENERIC]
    monkeypatch.setattr(registry, "_GENERIC", tuple(generic))
    session = Session(Path("build"))
    session.add(backend_named(FORGETFUL))
    (outcome,) = judge_plan(session, FORGETFUL, checkpoint, Plan((CLAIM,), ()))
    assert not outcome.holds
    write_bundle(
        Path("bundle"),
        case="decode/law",
        backend=FORGETFUL,
        checkpoint=checkpoint,
        claim=CLAIM,
        outcome=outcome,
        session=session,
        provenance={},
    )
    session.close()
    return "bundle"


def test_on_its_own_backend(bundle: str, conformance: Conformance, checkpoint: Checkpoint) -> None:
    code, out, err = conformance("replay", bundle)
    assert (code, err) == (1, "")
    case, model, recorded, now = out.splitlines()
    assert case == "case: decode/law: whole: decode"
    assert model == f"model: {checkpoint.spec.describe()}, seed 1"
    assert recorded.startswith(f"recorded on {FORGETFUL}: divergent, error / noise ")
    assert now.startswith(f"now on {FORGETFUL}: divergent, error / noise ")
    assert now.endswith(": 1 row x 10, prefill 4 then one at a time, float32 vs 1 row x 10, whole, float32")


def test_on_another_backend(bundle: str, conformance: Conformance) -> None:
    code, out, err = conformance("replay", bundle, "--backend", "tests.toys:Toy")
    assert (code, err) == (0, "")
    assert "now on tests.toys:Toy: exact" in out


def test_beside_the_faults_that_were_known(
    bundle: str, conformance: Conformance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toy reference has no faults, so what it would leave is given."""
    file = Path(bundle) / "bundle.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "faults": ["window-one-short"]}))
    left = Verdict(Grade.DIVERGENT, ratio=230.4)
    monkeypatch.setattr(replay_module, "replay_predicted", lambda stored, *_: left if stored.faults else None)
    words = "reference + window-one-short leaves 230 x noise"
    assert f"\n  {words}\n" in conformance("replay", bundle)[1]
    assert json.loads(conformance("replay", bundle, "--json")[1])["prediction"] == words


def test_as_json(bundle: str, conformance: Conformance) -> None:
    code, out, err = conformance("replay", bundle, "--json")
    content = json.loads(out)
    assert (code, err, content["holds"], content["grade"]) == (1, "", False, "divergent")
    assert content["prediction"] is None


def test_on_a_backend_that_breaks(bundle: str, conformance: Conformance) -> None:
    code, out, err = conformance("replay", bundle, "--backend", "tests.toys:Raises")
    assert (code, err) == (2, "")
    assert "now on tests.toys:Raises: error: failed: RuntimeError: no kernel for head size 24" in out


def test_on_a_backend_that_cannot(bundle: str, conformance: Conformance) -> None:
    assert conformance("replay", bundle, "--backend", "tests.toys:Unable") == (
        2,
        "",
        "tests.toys:Unable could not be judged: no sequences above 8 tokens\n",
    )


def test_what_is_no_bundle(conformance: Conformance, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert conformance("replay", str(empty)) == (
        2,
        "",
        f"conformance: bundle.json is missing, but a bundle needs it [{empty}]\n",
    )
    (empty / "bundle.json").write_text("{")
    code, out, err = conformance("replay", str(empty))
    assert (code, out) == (2, "")
    assert err.startswith("conformance: bundle.json is not JSON: ")
    (empty / "bundle.json").write_text('{"version": 9}')
    assert conformance("replay", str(empty)) == (
        2,
        "",
        f"conformance: version = 9, but should be 2 [{empty / 'bundle.json'}]\n",
    )
