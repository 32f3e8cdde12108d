"""Both releases' stand-ins through the adapter, in the environments of their backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.checkpoints.container import write_container
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import Agree, Claim, Matches, Outcome, Plan
from conformance.compare.verdict import Grade
from conformance.errors import BadInput, Refused
from conformance.feeds import Crop, Feed, Forward, Reset
from conformance.judging import judge_plan
from conformance.runs import Session
from tests.backends.transformers.remote import Remote, RemoteAdapter
from tests.families.plamo3.sizes import tiny, tiny_2604
from tests.inline import InlineSession

pytest_plugins = ["tests.backends.transformers.engines"]

WINDOW = 4
SPECS = {"2604": tiny_2604(), "4k": tiny()}
PROBES = "tests.backends.transformers.probes"


def row_of(width: int, batch: int = 1) -> Feed:
    """Tokens that differ from their neighbours and from row to row."""
    tokens = tuple(tuple((7 * column + 31 * row + 5) % 97 for column in range(width)) for row in range(batch))
    return Feed(tokens=tokens, steps=(Forward(width),))


ROW = row_of(14)
ROWS = replace(row_of(12, batch=3), lengths=(3, 7, 12), padding="left")
PACKED = replace(
    row_of(14),
    positions=((*range(6), *range(8)),),
    segments=((0,) * 6 + (1,) * 8,),
)


@dataclass(frozen=True)
class Subject:
    """One release's backend, a model, and a session in which both it and the reference run."""

    release: str
    remote: Remote
    checkpoint: Checkpoint
    session: Session

    def judge(self, claim: Claim) -> Outcome:
        return judge_plan(self.session, "own", self.checkpoint, Plan((claim,), ()))[0]

    def run(self, feed: Feed) -> np.ndarray:
        logits = self.remote.call(f"{PROBES}:run", str(self.checkpoint.path), feed.to_dict())
        return np.array(logits, np.float64)


@pytest.fixture(scope="module", params=["2604", "4k"])
def subject(
    request: pytest.FixtureRequest,
    engine: Callable[[str], Remote],
    tmp_path_factory: pytest.TempPathFactory,
) -> Subject:
    release: str = request.param
    remote = engine(release)
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("models"), SPECS[release], seed=5)
    session = InlineSession(ReferenceAdapter({}), {"own": RemoteAdapter(remote)})
    return Subject(release, remote, checkpoint, session)


REFUSAL_4K = "Plamo3Cache.crop: cannot crop to 8 tokens: layer 0 has kept only the last 4 of 10"

FED = {
    "whole": ROW,
    "one at a time from before the window": ROW.token_by_token(2),
    "in chunks": ROW.split([3, 6, 2]),
    "rows padded on the left, and decoded on": ROWS.token_by_token(8),
    "rows padded on the right": replace(ROWS, padding="right"),
    "packed rows": PACKED,
    "in BF16": replace(ROW, dtype="bfloat16"),
    "cut back before anything was dropped": replace(ROW, steps=(Forward(3), Crop(1), Forward(11))),
}


class TestAgreementWithTheReference:
    @pytest.mark.parametrize("name", FED)
    def test_fed(self, subject: Subject, name: str) -> None:
        outcome = subject.judge(Matches("reference", FED[name]))
        assert outcome.verdict.problem == ""
        assert outcome.holds
        assert outcome.verdict.ratio > 0

    def test_in_float64(self, subject: Subject) -> None:
        """Nothing in the model is computed in less than it is asked for."""
        feed = replace(ROW, dtype="float64")
        oracle = ReferenceAdapter({})
        want = oracle.run(oracle.prepare(subject.checkpoint.path), feed)
        np.testing.assert_allclose(subject.run(feed), want, rtol=0, atol=1e-11)

    def test_what_it_says_of_itself(self, subject: Subject) -> None:
        found = subject.remote.call(f"{PROBES}:described", str(subject.checkpoint.path), ROW.to_dict())
        assert found["logits"] == [[1, 14, 97], "float32"]
        assert found["versions"]["transformers"] == {"2604": "5.12.1", "4k": "4.57.1"}[subject.release]
        assert found["versions"]["torch"].startswith("2.13.0")
        assert set(found["versions"]) == {"transformers", "torch", "numpy", "safetensors"}
        assert found["numerics"] == {
            "device": "cpu",
            "threads": 1,
            "matmul": "highest",
            "tf32": False,
            "deterministic": True,
            "attention": "sdpa",
        }

    def test_remote_code_stays_in_a_directory_of_the_process(self, subject: Subject) -> None:
        found = subject.remote.call(f"{PROBES}:surroundings", str(subject.checkpoint.path))
        assert found["module"].startswith(f"transformers_modules.{found['code']}.")
        assert found["module"].endswith(f".modeling_plamo_{subject.release}")
        assert found["modules"] == f"{found['scratch']}/modules"
        assert found["target"] == str(subject.checkpoint.path)
        assert found["training"] is False
        assert found["offline"] == ["1", "1"]

    def test_a_model_is_loaded_for_each_dtype_and_freed(self, subject: Subject) -> None:
        kept = subject.remote.call(f"{PROBES}:forgotten", str(subject.checkpoint.path), ROW.to_dict())
        assert kept == [[], ["float32"], []]


class TestLoading:
    """Transformers fills what is missing with random values and drops the rest; the adapter does not."""

    def message(self, subject: Subject, directory: Path, edit: Callable[[dict[str, np.ndarray]], Any]) -> str:
        target = directory / "edited"
        target.mkdir()
        for file in subject.checkpoint.path.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        tensors = load_file(target / "model.safetensors")
        edit(tensors)
        write_container(target / "model.safetensors", tensors, "float32")
        with pytest.raises(BadInput) as caught:
            subject.remote.call(f"{PROBES}:run", str(target), ROW.to_dict())
        return str(caught.value).replace(str(target), "DIRECTORY")

    def test_a_missing_tensor(self, subject: Subject, tmp_path: Path) -> None:
        name = "model.layers.layers.1.mixer.k_norm.weight"
        assert self.message(subject, tmp_path, lambda tensors: tensors.pop(name)) == (
            f"{name} is missing, but the model's code has such a parameter [DIRECTORY]"
        )

    def test_an_unexpected_tensor(self, subject: Subject, tmp_path: Path) -> None:
        name = "model.layers.layers.1.mixer.v_norm.weight"
        assert self.message(subject, tmp_path, lambda tensors: tensors.update({name: np.ones(16)})) == (
            f"{name} is stored, but the model's code has no such parameter [DIRECTORY]"
        )

    def test_a_tensor_of_another_shape(self, subject: Subject, tmp_path: Path) -> None:
        name = "model.layers.layers.0.mlp.down_proj.weight"
        assert self.message(subject, tmp_path, lambda t: t.update({name: t[name][:, :-1].copy()})) == (
            f"{name} is stored in another shape than the model's code has [DIRECTORY]"
        )


class TestTraining:
    """docs/plamo3.md §8: 2604 skips its mask one token too far."""

    @pytest.mark.parametrize("mode", ["training", "training-nograd"])
    @pytest.mark.parametrize("width", [WINDOW, WINDOW + 1, WINDOW + 2])
    def test_against_evaluation(self, subject: Subject, mode: str, width: int) -> None:
        feed = row_of(width)
        outcome = subject.judge(Agree("evaluation", replace(feed, mode=mode), feed))
        differs = subject.release == "2604" and width == WINDOW + 1
        assert outcome.verdict.grade is not Grade.ERROR
        assert outcome.holds is not differs
        if differs:
            assert (outcome.verdict.bad, str(outcome.verdict.first_bad)) == (1, "row 0 position 4")

    def test_evaluation_is_what_it_was(self, subject: Subject) -> None:
        before = subject.run(ROW)
        subject.run(replace(ROW, mode="training"))
        np.testing.assert_array_equal(subject.run(ROW), before)


class TestCacheOperations:
    def test_a_wrapped_window_is_not_cut_back(self, subject: Subject) -> None:
        feed = replace(ROW, steps=(Forward(10), Crop(8), Forward(4)))
        with pytest.raises(Refused) as caught:
            subject.run(feed)
        if subject.release == "4k":
            assert str(caught.value) == REFUSAL_4K
        else:  # the rest is Transformers' sentence
            assert str(caught.value).startswith("DynamicCache.crop: ")

    def test_cutting_nothing_off_a_wrapped_window(self, subject: Subject) -> None:
        """Transformers' cache refuses all the same (docs/standins.md)."""
        feed = replace(ROW, steps=(Forward(10), Crop(10), Forward(4)))
        if subject.release == "2604":
            with pytest.raises(Refused):
                subject.run(feed)
        else:
            assert subject.judge(Matches("reference", feed)).holds

    def test_an_emptied_cache(self, subject: Subject) -> None:
        """Transformers' keeps keys of zeros, which go on being attended (docs/standins.md)."""
        outcome = subject.judge(Matches("reference", replace(ROW, steps=(Forward(2), Reset(), Forward(12)))))
        assert outcome.verdict.problem == ""
        assert outcome.holds is (subject.release == "4k")
        if subject.release == "2604":
            assert str(outcome.verdict.first_bad) == "row 0 position 2"
