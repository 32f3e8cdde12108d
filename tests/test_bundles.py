"""Bundles: a failing claim as a directory that gives the same verdict again, here and elsewhere."""

from __future__ import annotations

import datetime
import hashlib
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import conformance
from conformance import bundles, claims
from conformance.backends import registry
from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.bundles import (
    Bundle,
    claim_from_dict,
    claim_to_dict,
    read_bundle,
    replay,
    replay_predicted,
    source_hash,
    write_bundle,
)
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint, open_checkpoint, write_checkpoint
from conformance.claims import (
    Agree,
    Claim,
    Differ,
    Matches,
    MatchesOrRefuses,
    Outcome,
    Plan,
    SameTopTokens,
    Span,
    Still,
    WindowSpan,
)
from conformance.cli import main
from conformance.compare.verdict import Grade
from conformance.deviations import Prediction
from conformance.environments import Environment
from conformance.errors import BadInput
from conformance.families.base import Spec
from conformance.faults import faults_of, find
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset
from conformance.judging import judge_plan
from conformance.predictions import Predictions
from conformance.report.record import verdict_data
from conformance.trials import deal
from tests import toys
from tests.cases.chapters import RELEASES, all_cases
from tests.conftest import ROOT
from tests.inline import InlineSession


class Seer(toys.Toy):
    """Every logit knows the row's last token."""

    def run(self, model: tuple[int, int], feed: Feed) -> np.ndarray:
        return super().run(model, feed) + np.float32(feed.tokens[0][-1])


class WideEyed(toys.Toy):
    """Sees one token too many."""

    def prepare(self, checkpoint: Path) -> tuple[int, int]:
        vocabulary, window = super().prepare(checkpoint)
        return vocabulary, window + 1


ROW = Feed(tokens=((5, 11, 3, 8, 70, 20, 1, 9, 33, 2, 64, 15),), steps=(Forward(12),))
ROWS = replace(ROW, tokens=(*ROW.tokens, ROW.tokens[0][::-1]))
STEPS = ROW.token_by_token(4)
END = Feed(tokens=(ROW.tokens[0][4:],), steps=(Forward(8),))


def changed(feed: Feed, column: int) -> Feed:
    row = list(feed.tokens[0])
    row[column] += 1
    return replace(feed, tokens=(tuple(row), *feed.tokens[1:]))


# Every kind of claim, with a toy on which it fails.
FAILING: dict[str, tuple[type[toys.Toy], Claim]] = {
    "Matches": (toys.Forgetful, Matches("reference: decode", STEPS)),
    "MatchesOrRefuses": (
        toys.Forgetful,
        MatchesOrRefuses("crop", replace(ROW, steps=(Forward(6), Crop(2), Forward(6)))),
    ),
    "Agree": (toys.Forgetful, Agree("whole: decode", STEPS, ROW)),
    "Agree, spans": (
        toys.LastToken,
        Agree("its end", ROW, END, ((Span(0, 8, 12), Span(0, 4, 8)),)),
    ),
    "Still": (Seer, Still("position 11", ROW, changed(ROW, 11), (Span(0, 0, 11),))),
    "SameTopTokens": (
        toys.Forgetful,
        SameTopTokens("top tokens", replace(STEPS, dtype="bfloat16"), ROW),
    ),
    "Differ, at least": (toys.Toy, Differ("differs", STEPS, ROW, least=0.01)),
    "Differ, at most": (toys.Forgetful, Differ("is the same", STEPS, ROW, most=1e-6)),
    "WindowSpan": (WideEyed, WindowSpan("span", ROW, tuple(changed(ROW, 11 - k) for k in range(7)), 4)),
}


@dataclass(frozen=True)
class Written:
    """A bundle on disk, and what it was made from."""

    path: Path
    toy: type[toys.Toy]
    claim: Claim
    outcome: Outcome
    checkpoint: Checkpoint

    def content(self) -> Any:
        return json.loads((self.path / "bundle.json").read_text())


Write = Callable[..., Written]


@pytest.fixture
def write(tmp_path: Path, checkpoint: Checkpoint) -> Write:
    """Judges a claim on a toy and writes the outcome down."""

    def write(
        toy: type[toys.Toy],
        claim: Claim,
        on: Checkpoint = checkpoint,
        where: Path = tmp_path / "bundles" / "mine",
    ) -> Written:
        name = f"tests.toys:{toy.__name__}"
        session = InlineSession(toys.Toy({}), {name: toy({})})
        (outcome,) = judge_plan(session, name, on, Plan((claim,), ()))
        path = write_bundle(
            where,
            case="decode/token-by-token",
            backend=name,
            checkpoint=on,
            claim=claim,
            outcome=outcome,
            session=session,
            provenance={"versions": {"numpy": np.__version__}, "code": "its own"},
        )
        return Written(path, toy, claim, outcome, on)

    return write


@pytest.fixture(params=FAILING)
def written(request: pytest.FixtureRequest, write: Write) -> Written:
    """A bundle of each kind of claim."""
    return write(*FAILING[request.param])


class TestClaimsAsData:
    def test_every_kind_has_an_example(self) -> None:
        kinds = {
            value for _, value in inspect.getmembers(claims, inspect.isclass) if issubclass(value, Claim)
        }
        assert {type(claim) for _, claim in FAILING.values()} == kinds - {Claim}

    @pytest.mark.parametrize("kind", FAILING)
    def test_there_and_back(self, kind: str) -> None:
        _, claim = FAILING[kind]
        text = json.dumps(claim_to_dict(claim), allow_nan=False)
        assert claim_from_dict(json.loads(text)) == claim

    def test_every_kind_of_step(self) -> None:
        steps = (Forward(5), Crop(3), Forward(4), Reorder((1, 1)), Forward(2), Reset(), Forward(1))
        claim = Matches("steps", replace(ROWS, steps=steps, lengths=(7, 12), padding="left"))
        assert claim_from_dict(json.loads(json.dumps(claim_to_dict(claim)))) == claim

    @pytest.mark.parametrize("release", RELEASES)
    def test_every_claim_of_every_case(self, release: str) -> None:
        for what in all_cases().values():
            for trial in deal(what, "plamo3", release, {}, 1):
                for claim in what.plan(trial).claims:
                    text = json.dumps(claim_to_dict(claim), allow_nan=False)
                    assert claim_from_dict(json.loads(text)) == claim

    def test_an_unknown_kind(self) -> None:
        with pytest.raises(BadInput) as caught:
            claim_from_dict({"kind": "Equals", "label": "a"})
        assert str(caught.value) == (
            "claim kind = 'Equals', but should be one of Agree, Differ, Matches, MatchesOrRefuses, "
            "SameTopTokens, Still, WindowSpan"
        )


class TestWriting:
    def test_what_stands_in_it(self, write: Write, spec: Spec) -> None:
        bundle = write(*FAILING["Agree"])
        content = bundle.content()
        assert {key: content[key] for key in ("version", "case", "backend", "family", "release", "seed")} == {
            "version": 2,
            "case": "decode/token-by-token",
            "backend": "tests.toys:Forgetful",
            "family": "plamo3",
            "release": "2604",
            "seed": 1,
        }
        assert content["spec"] == spec.to_config()
        assert content["checkpoint"] == bundle.checkpoint.identity
        assert content["found"] == {"text": bundle.outcome.text, **verdict_data(bundle.outcome.verdict)}
        assert content["provenance"] == {
            "versions": {"numpy": np.__version__},
            "code": "its own",
            "harness": metadata.version("plamo-conformance"),
            "source": source_hash(),
        }

    def test_the_logits_lie_beside_it(self, write: Write) -> None:
        bundle = write(*FAILING["Agree"])
        tensors = load_file(bundle.path / "logits.safetensors")
        model = toys.Toy({}).prepare(bundle.checkpoint.path)
        assert set(tensors) == {f"{what}.{i}" for what in ("backend", "reference", "noise") for i in (0, 1)}
        np.testing.assert_array_equal(tensors["backend.0"], toys.Forgetful({}).run(model, STEPS))
        np.testing.assert_array_equal(tensors["backend.1"], toys.Forgetful({}).run(model, ROW))
        exact = toys.Toy({}).run(model, replace(ROW, dtype="float64"))
        np.testing.assert_array_equal(tensors["reference.0"], exact)
        assert tensors["noise.0"].shape == (1, 12)

    def test_a_run_without_logits_is_written_all_the_same(self, write: Write) -> None:
        bundle = write(toys.Raises, Matches("reference", ROW))
        assert set(load_file(bundle.path / "logits.safetensors")) == {"reference.0", "noise.0"}
        assert bundle.content()["found"]["problem"].startswith("failed: no kernel for head size 24")

    def test_it_is_json_also_where_a_logit_is_not_a_number(self, write: Write) -> None:
        def refuse(text: str) -> None:
            raise AssertionError(text)

        bundle = write(toys.NotFinite, Matches("reference", ROW))
        json.loads((bundle.path / "bundle.json").read_text(), parse_constant=refuse)

    def test_tens_of_kilobytes(self, written: Written) -> None:
        assert sum(file.stat().st_size for file in written.path.iterdir()) < 100_000

    def test_nothing_else_is_left(self, written: Written) -> None:
        assert sorted(file.name for file in written.path.iterdir()) == ["bundle.json", "logits.safetensors"]
        assert list(written.path.parent.iterdir()) == [written.path]

    def test_another_of_the_same_name_is_replaced(self, write: Write) -> None:
        path = write(*FAILING["Matches"]).path
        (path / "notes").touch()
        again = write(*FAILING["Agree"])
        assert again.path == path
        assert read_bundle(path).claim == again.claim
        assert not (path / "notes").exists()

    def test_one_that_cannot_be_written_leaves_nothing_half_made(self, write: Write, tmp_path: Path) -> None:
        class Gone(InlineSession):
            def truth(self, *_: Any) -> Any:
                raise OSError("the reference is gone")

        bundle = write(*FAILING["Matches"])
        with pytest.raises(OSError, match=r"^the reference is gone$"):
            write_bundle(
                tmp_path / "gone" / "mine",
                case="reference/whole",
                backend="mine",
                checkpoint=bundle.checkpoint,
                claim=bundle.claim,
                outcome=bundle.outcome,
                session=Gone(toys.Toy({}), {"mine": toys.Toy({})}),
                provenance={},
            )
        assert not (tmp_path / "gone").exists() or list((tmp_path / "gone").iterdir()) == []

    def test_the_source_hash_is_of_the_package_s_python_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "conformance"
        (package / "sub").mkdir(parents=True)
        monkeypatch.setattr(conformance, "__file__", str(package / "__init__.py"))
        found = set()
        for name, text in (("__init__.py", ""), ("sub/a.py", "x"), ("sub/a.py", "y"), ("sub/a.txt", "z")):
            (package / name).write_text(text)
            bundles.source_hash.cache_clear()
            found.add(bundles.source_hash())
        bundles.source_hash.cache_clear()
        assert len(found) == 3
        assert all(len(digest) == 64 for digest in found)


class TestReplaying:
    def again(self, bundle: Bundle, toy: type[toys.Toy], checkpoints: Path) -> Outcome:
        """The outcome in another session, on a checkpoint that is generated anew."""
        session = InlineSession(toys.Toy({}), {bundle.backend: toy({})})
        return replay(bundle, session, bundle.backend, checkpoints)

    def test_the_verdict_is_the_same(self, written: Written, tmp_path: Path) -> None:
        assert not written.outcome.holds
        bundle = read_bundle(written.path)
        assert bundle.claim == written.claim
        again = self.again(bundle, written.toy, tmp_path / "elsewhere")
        assert again == written.outcome
        assert {"text": again.text, **verdict_data(again.verdict)} == bundle.found

    def test_the_model_is_the_same(self, written: Written, tmp_path: Path) -> None:
        bundle = read_bundle(written.path)
        self.again(bundle, written.toy, tmp_path / "elsewhere")
        (model,) = (tmp_path / "elsewhere").iterdir()
        assert model.name == bundle.checkpoint == written.checkpoint.identity
        for file in written.checkpoint.path.iterdir():
            assert (model / file.name).read_bytes() == file.read_bytes()

    def test_the_layout_is_kept(self, write: Write, spec: Spec, tmp_path: Path) -> None:
        layout = Layout(dtype="bfloat16", shards=2, omit_defaults=True)
        stored = write_checkpoint(tmp_path / "models", spec, 3, layout)
        bundle = read_bundle(write(*FAILING["Matches"], on=stored).path)
        assert (bundle.layout, bundle.seed, bundle.spec) == (layout, 3, spec)
        self.again(bundle, toys.Forgetful, tmp_path / "elsewhere")
        assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [stored.identity]

    def test_another_backend_may_conform(self, written: Written, tmp_path: Path) -> None:
        if isinstance(written.claim, Differ) and written.claim.least:
            written = replace(written, toy=toys.Forgetful)  # on which what should differ does
            assert self.again(read_bundle(written.path), written.toy, tmp_path).holds
        else:
            assert self.again(read_bundle(written.path), toys.Toy, tmp_path).holds

    def test_an_error_is_an_error_again(self, write: Write, tmp_path: Path) -> None:
        bundle = read_bundle(write(toys.Raises, Matches("reference", ROW)).path)
        again = self.again(bundle, toys.Raises, tmp_path)
        assert again.verdict.grade is Grade.ERROR
        assert again.verdict.problem == bundle.found["problem"]

    def test_a_checkpoint_that_a_user_brought_is_opened_where_it_lies(
        self, write: Write, checkpoint: Checkpoint, tmp_path: Path
    ) -> None:
        shutil.copytree(checkpoint.path, tmp_path / "brought")
        bundle = read_bundle(write(*FAILING["Matches"], on=open_checkpoint(tmp_path / "brought")).path)
        assert (bundle.seed, bundle.checkpoint) == (None, str(tmp_path / "brought"))
        assert not self.again(bundle, toys.Forgetful, tmp_path / "elsewhere").holds
        assert not (tmp_path / "elsewhere").exists()
        shutil.rmtree(tmp_path / "brought")
        with pytest.raises(BadInput) as caught:
            self.again(bundle, toys.Forgetful, tmp_path / "elsewhere")
        assert str(caught.value) == (
            f"config.json is missing, but a checkpoint directory needs it [{tmp_path / 'brought'}]"
        )

    def test_without_hypothesis(self, write: Write, tmp_path: Path) -> None:
        bundle = write(*FAILING["Agree"])
        code = (
            "import sys\n"
            "sys.modules['hypothesis'] = None\n"
            "from pathlib import Path\n"
            "from conformance.bundles import read_bundle, replay\n"
            "from tests import toys\n"
            "from tests.inline import InlineSession\n"
            "bundle = read_bundle(Path(sys.argv[1]))\n"
            "session = InlineSession(toys.Toy({}), {bundle.backend: toys.Forgetful({})})\n"
            "outcome = replay(bundle, session, bundle.backend, Path(sys.argv[2]))\n"
            "assert not outcome.holds\n"
            "assert outcome.verdict.ratio == bundle.found['ratio']\n"
        )
        command = [sys.executable, "-c", code, str(bundle.path), str(tmp_path / "elsewhere")]
        subprocess.run(command, check=True, cwd=ROOT)


class TestNoBundle:
    """Each is refused in a line that names the file."""

    def message(self, directory: Path) -> str:
        with pytest.raises(BadInput) as caught:
            read_bundle(directory)
        return str(caught.value)

    def edited(self, write: Write, edit: Callable[[Any], Any]) -> tuple[Path, str]:
        bundle = write(*FAILING["Agree"])
        content = bundle.content()
        replaced = edit(content)
        file = bundle.path / "bundle.json"
        file.write_text(json.dumps(content if replaced is None else replaced))
        return file, self.message(bundle.path)

    def test_a_directory_without_one(self, tmp_path: Path) -> None:
        want = "bundle.json is missing, but a bundle needs it [{}]"
        assert self.message(tmp_path) == want.format(tmp_path)
        assert self.message(tmp_path / "nowhere") == want.format(tmp_path / "nowhere")

    def test_no_json(self, tmp_path: Path) -> None:
        (tmp_path / "bundle.json").write_text("{nope")
        assert self.message(tmp_path) == (
            "bundle.json is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
            f"(char 1) [{tmp_path}/bundle.json]"
        )

    def test_no_object(self, write: Write) -> None:
        file, message = self.edited(write, lambda content: [content])
        assert message == f"bundle.json = list, but should be an object [{file}]"

    @pytest.mark.parametrize("version", [0, 1, "2", None])
    def test_another_version(self, write: Write, version: Any) -> None:
        file, message = self.edited(write, lambda content: content.update(version=version))
        assert message == f"version = {version!r}, but should be 2 [{file}]"

    @pytest.mark.parametrize("key", ["case", "backend", "family", "spec", "seed", "layout", "claim", "found"])
    def test_a_missing_key(self, write: Write, key: str) -> None:
        def edit(content: Any) -> None:
            del content[key]

        file, message = self.edited(write, edit)
        assert message == f"{key} is missing, but a bundle needs it [{file}]"

    def test_a_missing_part_of_the_claim(self, write: Write) -> None:
        def edit(content: Any) -> None:
            del content["claim"]["other"]

        file, message = self.edited(write, edit)
        assert message == f"other is missing, but a bundle needs it [{file}]"

    def test_an_unknown_family(self, write: Write) -> None:
        _, message = self.edited(write, lambda content: content.update(family="plamo9"))
        assert message == "model_type = 'plamo9', but should be plamo3 or gemma4"

    def test_an_unknown_layout(self, write: Write) -> None:
        file, message = self.edited(write, lambda content: content["layout"].update(folded=True))
        assert message == f"folded is not a key of a layout: dtype, omit_defaults, recipe, shards [{file}]"

    def test_a_spec_that_is_wrong(self, write: Write) -> None:
        file, message = self.edited(write, lambda content: content["spec"].update(head_dim=15))
        assert message == (
            f"head_dim = 15, but should be even: RoPE rotates pairs (j, j + head_dim/2) [{file}]"
        )


def rewritten(bundle: Written, **changes: Any) -> None:
    """Change keys of a bundle that was written."""
    (bundle.path / "bundle.json").write_text(json.dumps({**bundle.content(), **changes}))


class TestTheCommand:
    """`conformance replay`, with workers in processes of their own."""

    @pytest.fixture
    def conformance(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], private_cache: Path
    ) -> Callable[..., tuple[int, str, str]]:
        monkeypatch.chdir(ROOT)
        generic = tuple(
            replace(b, adapter="tests.toys:Toy", options={"paths": [str(ROOT)]})
            if b.name == "reference"
            else b
            for b in registry._GENERIC
        )
        monkeypatch.setattr(registry, "_GENERIC", generic)

        def run(*arguments: str) -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "argv", ["conformance", *arguments])
            with pytest.raises(SystemExit) as left:
                main()
            out, err = capfd.readouterr()
            assert isinstance(left.value.code, int)
            return left.value.code, out, err

        return run

    def test_it_fails_again(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(*FAILING["Agree"])
        code, out, err = conformance("replay", str(bundle.path))
        verdict = bundle.outcome.verdict
        figures = f"error / noise {verdict.ratio:.3g}"
        assert (code, err) == (1, "")
        assert out.splitlines()[:4] == [
            "case: decode/token-by-token: whole: decode",
            "model: 2604: 2 layers, D 48, heads 6/2, d 16, F 56, W 4, V 97, tied, seed 1",
            f"recorded on tests.toys:Forgetful: divergent, {figures}",
            f"now on tests.toys:Forgetful: divergent, {figures}, max abs {verdict.max_abs:.3g}, "
            f"{verdict.bad} of 12 positions: 1 row x 12, prefill 4 then one at a time, float32 "
            "vs 1 row x 12, whole, float32",
        ]

    def test_another_backend_conforms(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(*FAILING["Agree"])
        code, out, err = conformance("replay", str(bundle.path), "--backend", "reference")
        assert (code, err) == (0, "")
        assert out.splitlines()[3].startswith("now on reference: exact, error / noise 0, max abs 0, 0 of 12")

    def test_json(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(*FAILING["Matches"])
        code, out, err = conformance("replay", str(bundle.path), "--json")
        assert (code, err) == (1, "")
        assert json.loads(out).items() >= {"holds": False, **bundle.content()["found"]}.items()

    def test_an_error_is_no_verdict(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(toys.Raises, Matches("reference", ROW))
        code, out, _ = conformance("replay", str(bundle.path))
        assert code == 2
        assert out.splitlines()[-1].startswith(
            "now on tests.toys:Raises: error: failed: RuntimeError: no kernel for head size 24"
        )

    def test_a_backend_that_cannot_run_it(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(*FAILING["Agree"])
        assert conformance("replay", str(bundle.path), "--backend", "tests.toys:Whole") == (
            2,
            "",
            "tests.toys:Whole could not be judged: lacks decode\n",
        )

    def test_a_model_that_is_made_otherwise_now(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(*FAILING["Agree"])
        rewritten(bundle, checkpoint="0123456789abcdef")
        code, out, _ = conformance("replay", str(bundle.path))
        assert code == 1
        assert out.splitlines()[2] == (
            "note: this version makes another checkpoint of the same spec and seed than was recorded"
        )

    def test_released_code_that_is_not_named(self, conformance: Callable[..., Any], write: Write) -> None:
        """What was found in released code is no finding of the stand-in."""
        bundle, recorded = write(*FAILING["Agree"]), f"sha256:{'0' * 64}"
        rewritten(bundle, backend="plamo3-2604", provenance={"code": recorded})
        assert conformance("replay", str(bundle.path)) == (
            2,
            "",
            f"conformance: code = 'stand-in', but should be {recorded}, which the bundle was recorded with; "
            f"name it with --release-code 2604=DIR [{bundle.path}]\n",
        )

    def test_released_code_in_the_place_of_the_stand_in(
        self,
        conformance: Callable[..., Any],
        write: Write,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "modeling.py").write_bytes(b"")
        (tmp_path / "code" / "config.json").write_text('{"auto_map": {}}')
        monkeypatch.setattr(Environment, "is_ready", lambda _: True)
        bundle = write(*FAILING["Agree"])
        rewritten(bundle, backend="plamo3-2604", provenance={"code": "stand-in"})
        named = hashlib.sha256(b"modeling.py\0").hexdigest()
        said = (
            f"conformance: code = 'sha256:{named}', but should be stand-in, which the bundle was recorded "
            f"with; name none [{bundle.path}]\n"
        )
        option = ("--release-code", f"2604={tmp_path / 'code'}")
        assert conformance("replay", str(bundle.path), *option) == (2, "", said)
        monkeypatch.setenv("CONFORMANCE_RELEASE_CODE_2604", str(tmp_path / "code"))
        assert conformance("replay", str(bundle.path)) == (2, "", said)

    def test_another_backend_may_run_other_code(self, conformance: Callable[..., Any], write: Write) -> None:
        bundle = write(*FAILING["Agree"])
        rewritten(bundle, backend="plamo3-2604", provenance={"code": f"sha256:{'0' * 64}"})
        assert conformance("replay", str(bundle.path), "--backend", "reference")[0] == 0

    def test_no_bundle(self, conformance: Callable[..., Any], tmp_path: Path) -> None:
        assert conformance("replay", str(tmp_path)) == (
            2,
            "",
            f"conformance: bundle.json is missing, but a bundle needs it [{tmp_path}]\n",
        )


def test_a_bundle_keeps_the_faults_that_it_was_judged_with(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Replaying tells what the reference with them leaves, on any backend."""
    has = ("window-one-short", "amplitude-missing")
    session = InlineSession(
        ReferenceAdapter({}), {"mine": FaultyAdapter({"faults": has}), "right": FaultyAdapter({})}
    )
    recorded = Prediction(
        backend="mine",
        release="2604",
        faults=(find(faults_of("plamo3").FAULTS, "window-one-short"),),
        what="one token too few",
        evidence="docs/plamo3.md §6",
        date=datetime.date(2026, 1, 31),
        versions=(("engine", ">=1"),),
        source="mine.toml entry 1",
    )
    claim = Matches("reference", ROW)
    (outcome,) = judge_plan(session, "mine", checkpoint, Plan((claim,), ()), Predictions((recorded,)))
    assert not outcome.holds
    path = write_bundle(
        tmp_path / "bundle",
        case="a/b",
        backend="mine",
        checkpoint=checkpoint,
        claim=claim,
        outcome=outcome,
        session=session,
        provenance={},
    )
    stored = read_bundle(path)
    assert stored.faults == ("window-one-short",)
    assert outcome.predicted is not None
    assert replay_predicted(stored, session, "mine", tmp_path) == outcome.predicted.residual
    right = replay_predicted(stored, session, "right", tmp_path)
    assert right is not None
    assert right.ratio > 100
    assert replay_predicted(replace(stored, faults=()), session, "right", tmp_path) is None
