"""`conformance golden`: record, verify, list and diff. Toys play the engines, but for the last two tests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.backends import registry
from conformance.checkpoints.layout import Layout
from conformance.cli import golden as golden_module
from conformance.environments import ENVIRONMENTS
from conformance.families import family_of
from conformance.goldens.store import Golden, read_goldens, weights_hash, write_goldens
from conformance.goldens.trials import golden_trials
from tests.cli.conftest import Conformance
from tests.conftest import ROOT
from tests.goldens.sessions import WHOLE, session_of, trial_of
from tests.goldens.test_store import content_of
from tests.goldens.test_verify import made

# Where the environment is, before a test has a cache of its own.
TRANSFORMERS = ENVIRONMENTS["transformers-5"].path
VERSIONS = f"its own, numpy {np.__version__}"
LIFTED = "divergent, error / noise 2.1e+06, max abs 0.5, 10 of 10 positions"


@pytest.fixture
def toys(conformance: Conformance, monkeypatch: pytest.MonkeyPatch) -> Conformance:
    """The command, with a toy for the reference and the other toys within reach."""
    Path("tests").symlink_to(ROOT / "tests")
    toy = {"adapter": "tests.toys:Toy", "options": {"paths": [str(ROOT)]}}
    generic = [replace(b, **toy) if b.name == "reference" else b for b in registry._GENERIC]
    monkeypatch.setattr(registry, "_GENERIC", tuple(generic))
    return conformance


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two goldens that the toy made, one of each release."""
    root = tmp_path_factory.mktemp("two")
    trials = [t.model.spec for t in golden_trials() if t.id.endswith("-small-whole-float32")]
    one, other = (
        trial_of(spec, feed, name)
        for spec, feed, name in zip(trials, (WHOLE, WHOLE.token_by_token(4)), ("late", "short"), strict=True)
    )
    write_goldens(root / "golden", made(session_of(), root, [one, other]))
    return root / "golden"


@pytest.fixture
def directory(two: Path, toys: Conformance) -> str:
    """A copy of them in the working directory."""
    shutil.copytree(two, "golden")
    return "golden"


def alter(
    directory: str, change: Callable[[Golden], Golden], name: str = "late", to: str | None = None
) -> None:
    """Write the goldens again, one of them changed."""
    goldens = read_goldens(Path(directory))
    goldens[name] = change(goldens[name])
    write_goldens(Path(to or directory), goldens.values())


def off_by_a_thousandth(golden: Golden) -> Golden:
    logits = golden.logits.copy()
    logits[0, 6, 11] += 1e-3
    return replace(golden, logits=logits)


# list


def test_list(directory: str, toys: Conformance) -> None:
    code, out, err = toys("golden", "list", "--directory", directory)
    assert (code, err) == (0, "")
    for words in ("golden", "model", "producer", "agreed", "late", "short", "reference, its own", "W 4"):
        assert words in out


def test_list_of_the_project_s_own_shows_whole_ids_and_who_agreed(conformance: Conformance) -> None:
    code, out, err = conformance("golden", "list")
    assert (code, err) == (0, "")
    for trial in golden_trials():
        assert f"│ {trial.id} " in out
    assert "plamo3-2604 (rounding" in out


def test_list_as_json(directory: str, toys: Conformance) -> None:
    code, out, err = toys("golden", "list", "--directory", directory, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    golden = read_goldens(Path(directory))["late"]
    assert content["late"] == {
        "release": "2604",
        "model": golden.spec.describe(),
        "seed": 0,
        "weights": weights_hash(golden.spec, 0, Layout()),
        "feed": "1 row x 10, whole, float32",
        "producer": dict(golden.producer),
        "command": "the command",
        "agreed": [],
    }


# verify


def test_a_backend_that_holds(directory: str, toys: Conformance) -> None:
    assert toys("golden", "verify", "--directory", directory) == (
        0,
        f"reference: {VERSIONS}\n"
        "late: exact, error / noise 0, max abs 0, 0 of 10 positions\n"
        "short: exact, error / noise 0, max abs 0, 0 of 10 positions\n",
        "",
    )


def test_a_backend_that_does_not(directory: str, toys: Conformance) -> None:
    name = "tests.toys:Forgetful"
    code, out, err = toys("golden", "verify", "--backend", name, "--directory", directory)
    assert (code, err) == (1, "")
    heading, late, short = out.splitlines()
    assert heading == f"{name}: {VERSIONS}"
    assert late == "late: exact, error / noise 0, max abs 0, 0 of 10 positions"
    assert short.startswith("short: divergent, error / noise ")
    assert short.endswith(", 6 of 10 positions")


def test_a_backend_that_breaks(directory: str, toys: Conformance) -> None:
    code, out, err = toys("golden", "verify", "--backend", "tests.toys:Raises", "--directory", directory)
    assert (code, err) == (1, "")
    assert "late: error: failed: RuntimeError: no kernel for head size 24\n" in out


def test_a_backend_that_can_be_asked_for_none(directory: str, toys: Conformance) -> None:
    code, out, err = toys("golden", "verify", "--backend", "tests.toys:Whole", "--directory", directory)
    assert (code, out.splitlines()[1:], err) == (
        2,
        ["late: n/a: head_dim 16 is outside its limit: one_of [24]", "short: n/a: does not claim 4k"],
        "",
    )


def test_verify_as_json(directory: str, toys: Conformance) -> None:
    alter(directory, off_by_a_thousandth)
    code, out, err = toys("golden", "verify", "--directory", directory, "--json")
    assert (code, err) == (1, "")
    content = json.loads(out)
    assert (content["backend"], content["code"], content["versions"]) == (
        "reference",
        "its own",
        {"numpy": np.__version__},
    )
    late, short = content["goldens"]["late"], content["goldens"]["short"]
    assert (late["grade"], late["first_bad"], late["bad"], late["reason"]) == ("divergent", [0, 6], 1, "")
    assert (short["grade"], short["ratio"]) == ("exact", 0.0)


def test_verify_as_json_where_none_applies(directory: str, toys: Conformance) -> None:
    name = "tests.toys:Whole"
    code, out, _ = toys("golden", "verify", "--backend", name, "--directory", directory, "--json")
    assert code == 2
    assert json.loads(out)["goldens"]["short"] == {"reason": "does not claim 4k"}


def test_some_releases(directory: str, toys: Conformance) -> None:
    code, out, err = toys("golden", "verify", "--directory", directory, "--release", "4k")
    assert (code, len(out.splitlines()), err) == (0, 2, "")
    assert toys("golden", "verify", "--directory", directory, "--release", "4k", "--release", "5k") == (
        2,
        "",
        "conformance: --release = '5k', but should be one of 2604, 4k\n",
    )


def test_other_weights_than_then(directory: str, toys: Conformance) -> None:
    alter(directory, lambda golden: replace(golden, weights="0" * 64))
    code, out, err = toys("golden", "verify", "--directory", directory)
    assert (code, err) == (1, "")
    assert out.splitlines()[1] == (
        "late: error: the weights of this spec and seed are no longer those that it was recorded with"
    )


def edit(directory: Path) -> None:
    file = directory / "late.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")


def truncate(directory: Path) -> None:
    file = directory / "late.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def add(directory: Path) -> None:
    shutil.copyfile(directory / "late.safetensors", directory / "later.safetensors")


def remove(directory: Path) -> None:
    (directory / "late.safetensors").unlink()


def edit_pedigree(directory: Path) -> None:
    file = directory / "manifest.json"
    file.write_text(file.read_text().replace('"its own"', '"stand-in"', 1))


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "edited": (
        edit,
        "golden late was edited or truncated: its SHA-256 is not the manifest's [golden/late.safetensors]",
    ),
    "truncated": (
        truncate,
        "golden late was edited or truncated: its SHA-256 is not the manifest's [golden/late.safetensors]",
    ),
    "unused": (
        add,
        "golden later is unused: no entry of manifest.json names it [golden/later.safetensors]",
    ),
    "missing": (
        remove,
        "golden late is missing: manifest.json names it, but there is no late.safetensors [golden]",
    ),
    "edited in the manifest": (
        edit_pedigree,
        "golden late was edited: its entry of manifest.json breaks its seal [golden/manifest.json]",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with_is_one_line(name: str, directory: str, toys: Conformance) -> None:
    tamper, message = TAMPERED[name]
    tamper(Path(directory))
    before = content_of(Path(directory))
    failure = (2, "", f"conformance: {message}\n")
    assert toys("golden", "verify", "--directory", directory) == failure
    assert toys("golden", "verify", "--directory", directory, "--json") == failure
    assert toys("golden", "list", "--directory", directory) == failure
    assert toys("golden", "diff", directory, "--directory", directory) == failure
    assert toys("golden", "record", "--directory", directory) == failure
    assert content_of(Path(directory)) == before


def test_the_project_s_own_must_be_the_fixed_set(
    directory: str, toys: Conformance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden_module, "golden_directory", lambda: Path(directory))
    failure = (
        2,
        "",
        "conformance: golden gemma4-gemma-4-sharing-decode-bfloat16 is missing: it is in the fixed set, but "
        "was not recorded\n",
    )
    assert toys("golden", "verify") == failure
    assert toys("golden", "list") == failure
    assert toys("golden", "verify", "--directory", directory) == failure


def test_no_goldens_at_all(conformance: Conformance) -> None:
    code, out, err = conformance("golden", "verify", "--directory", "nowhere")
    assert (code, out, err) == (
        2,
        "",
        "conformance: manifest.json is missing, but goldens need it [nowhere]\n",
    )


def test_a_worker_that_does_not_start(directory: str, toys: Conformance) -> None:
    code, out, err = toys("golden", "verify", "--backend", "tests.toys:Stillborn", "--directory", directory)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("conformance: a worker died: ")


# diff


def test_a_diff_of_the_same(directory: str, toys: Conformance) -> None:
    assert toys("golden", "diff", directory, "--directory", directory) == (
        0,
        "late: exact, error / noise 0, max abs 0, 0 of 10 positions\n"
        "short: exact, error / noise 0, max abs 0, 0 of 10 positions\n",
        "",
    )


def test_a_diff_reads(directory: str, toys: Conformance) -> None:
    """What only one has, what is of another model, and what differs, each in a line of its own."""
    goldens = read_goldens(Path(directory))
    late, short = goldens["late"], goldens["short"]
    wider = replace(late.spec, window_size=5)  # type: ignore[type-var]
    maker = {**late.producer, "backend": "plamo3-2604", "versions": {"transformers": "5.12.1"}}
    here = [replace(late, id="gone"), late, replace(late, id="same"), replace(short, id="wide", spec=wider)]
    there = [
        replace(off_by_a_thousandth(late), producer=maker),
        replace(late, id="new"),
        replace(late, id="same"),
        replace(late, id="wide", weights="other"),
    ]
    write_goldens(Path("here"), here)
    write_goldens(Path("there"), there)
    code, out, err = toys("golden", "diff", "there", "--directory", "here")
    assert (code, err) == (1, "")
    gone, differs, new, same, wide = out.splitlines()
    assert gone == "gone: only in here"
    assert differs.startswith("late: divergent, error / noise ")
    assert differs.endswith(
        f", 1 of 10 positions [reference ({VERSIONS}) → plamo3-2604 (its own, transformers 5.12.1)]"
    )
    assert new == "new: only in there"
    assert same == "same: exact, error / noise 0, max abs 0, 0 of 10 positions"
    assert wide == (
        "wide: window_size 5 → 4; feed 1 row x 10, prefill 4 then one at a time, float32 → "
        "1 row x 10, whole, float32"
    )


def test_a_diff_of_nothing_in_common(directory: str, toys: Conformance) -> None:
    goldens = read_goldens(Path(directory))
    write_goldens(Path("here"), [goldens["late"]])
    write_goldens(Path("there"), [goldens["short"]])
    assert toys("golden", "diff", "there", "--directory", "here") == (
        1,
        "late: only in here\nshort: only in there\n",
        "",
    )


def test_a_diff_of_some_releases(directory: str, toys: Conformance) -> None:
    """As when goldens of one release were recorded elsewhere."""
    write_goldens(Path("theirs"), [read_goldens(Path(directory))["late"]])
    options = ("golden", "diff", "theirs", "--directory", directory)
    assert toys(*options)[0] == 1
    assert toys(*options, "--release", "2604") == (
        0,
        "late: exact, error / noise 0, max abs 0, 0 of 10 positions\n",
        "",
    )
    assert toys(*options, "--release", "5k") == (
        2,
        "",
        "conformance: --release = '5k', but should be one of 2604, 4k\n",
    )


def test_a_diff_as_json(directory: str, toys: Conformance) -> None:
    alter(directory, off_by_a_thousandth, to="other")
    code, out, err = toys("golden", "diff", "other", "--directory", directory, "--json")
    assert (code, err) == (1, "")
    content = json.loads(out)
    assert (content["first"], content["second"]) == ("golden", "other")
    assert content["goldens"]["late"]["grade"] == "divergent"
    assert content["goldens"]["short"]["grade"] == "exact"


# record


def test_record(toys: Conformance) -> None:
    command = "golden record --directory new/golden --release 2604 --release 4k --agree tests.toys:Loud"
    code, out, err = toys(*command.split())
    assert (code, out) == (0, "")
    ids = [trial.id for trial in golden_trials() if trial.model.spec.family == "plamo3"]
    assert err.splitlines() == [
        *(f"{name}: rounding, agreed by tests.toys:Loud" for name in ids),
        "16 goldens recorded in new/golden",
    ]
    goldens = read_goldens(Path("new/golden"))
    assert sorted(goldens) == sorted(ids)
    for golden in goldens.values():
        assert golden.command == f"conformance {command}"
        assert [(a.backend, a.grade) for a in golden.agreed] == [("tests.toys:Loud", "exact")]
    before = content_of(Path("new"))
    assert toys(*command.split())[0] == 0
    assert content_of(Path("new")) == before


def test_recording_a_release_keeps_the_others_and_removes_what_is_not_in_the_set(
    directory: str, toys: Conformance
) -> None:
    kept = read_goldens(Path(directory))["short"]
    code, _, err = toys("golden", "record", "--directory", directory, "--release", "2604")
    assert code == 0
    assert err.splitlines()[-2:] == [
        "late: removed, for it is not in the fixed set",
        "8 goldens recorded in golden",
    ]
    goldens = read_goldens(Path(directory))
    assert len(goldens) == 9
    assert goldens["short"] == kept
    np.testing.assert_array_equal(goldens["short"].logits, kept.logits)


SET = "plamo3-2604-telling-whole-float32"
REFUSED: dict[str, tuple[list[str], str]] = {
    "a producer that is not the reference's like": (
        ["--producer", "tests.toys:Lifted"],
        f"golden {SET} is not recorded: tests.toys:Lifted and the reference in float64 disagree: divergent, "
        "error / noise 2.1e+06, first bad at row 0 position 0",
    ),
    "a witness that is not the producer's like": (
        ["--agree", "tests.toys:Loud", "--agree", "tests.toys:Lifted"],
        f"golden {SET} is not recorded: tests.toys:Lifted and reference disagree: divergent, "
        "error / noise 2.1e+06, first bad at row 0 position 0",
    ),
    "a witness that disagrees later": (
        ["--agree", "tests.toys:Forgetful"],
        "golden plamo3-2604-telling-decode-float32 is not recorded: tests.toys:Forgetful and reference "
        "disagree: divergent, error / noise ",
    ),
    "a producer that fails": (
        ["--producer", "tests.toys:Raises"],
        f"golden {SET} cannot be recorded from tests.toys:Raises: failed: RuntimeError: "
        "no kernel for head size 24",
    ),
    "a producer of one release only": (
        ["--producer", "tests.toys:Whole", "--release", "4k"],
        "golden plamo3-4k-telling-whole-float32 cannot be recorded from tests.toys:Whole: does not claim 4k",
    ),
    "a witness that can be asked for none": (
        ["--release", "2604", "--agree", "tests.toys:Whole"],
        "tests.toys:Whole had to agree, but can be asked for none of these goldens",
    ),
    "a release that there is not": (
        ["--release", "5k"],
        "--release = '5k', but should be one of 2604, 4k, gemma-4",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_line_and_leaves_the_directory_alone(
    name: str, directory: str, toys: Conformance
) -> None:
    arguments, message = REFUSED[name]
    before = content_of(Path())
    code, out, err = toys("golden", "record", "--directory", directory, *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"conformance: {message}")
    assert "recorded in" not in err
    assert content_of(Path()) == before


def test_a_refusal_makes_no_directory(toys: Conformance) -> None:
    code, _, _ = toys("golden", "record", "--directory", "new/golden", "--producer", "tests.toys:Lifted")
    assert code == 2
    assert not Path("new").exists()


def test_recording_does_not_replace_what_is_no_golden(directory: str, toys: Conformance) -> None:
    Path(directory, "notes.txt").write_text("mine")
    before = content_of(Path())
    for place, what in ((directory, "notes.txt"), (".", "golden")):
        assert toys("golden", "record", "--directory", place) == (
            2,
            "",
            f"conformance: {what} is no golden, but recording replaces the whole directory [{place}]\n",
        )
    assert content_of(Path()) == before


# For real


def test_goldens_that_a_release_s_code_made_judge_the_reference(
    conformance: Conformance, private_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine with the released code; a copy of our stand-in plays it, on half of the set."""
    half = [t for t in golden_trials() if "-telling-" in t.id]
    monkeypatch.setattr(golden_module, "golden_trials", lambda: iter(half))
    assert TRANSFORMERS.is_dir(), "make it with: conformance env sync plamo3-2604"
    (private_cache / "environments").mkdir(parents=True)
    (private_cache / "environments" / TRANSFORMERS.name).symlink_to(TRANSFORMERS)
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("configuration_plamo.py", "modeling_plamo_2604.py"):
        shutil.copyfile(family_of("plamo3").standin / name, snapshot / name)
    auto_map = family_of("plamo3").auto_map["2604"]
    (snapshot / "config.json").write_text(json.dumps({"auto_map": auto_map}))
    digest = hashlib.sha256()
    for file in sorted(snapshot.glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())

    options = ("--producer", "plamo3-2604", "--release", "2604", "--release-code", f"2604={snapshot}")
    code, out, err = conformance("golden", "record", "--directory", "theirs", *options)
    assert (code, out) == (0, ""), err
    goldens = read_goldens(Path("theirs"))
    assert sorted(goldens) == sorted(t.id for t in half if t.model.spec.release == "2604")
    for golden in goldens.values():
        assert (golden.producer["backend"], golden.producer["code"]) == (
            "plamo3-2604",
            f"sha256:{digest.hexdigest()}",
        )
        assert golden.producer["device"] == "cpu"
        assert set(golden.producer["versions"]) == {"transformers", "torch", "numpy", "safetensors"}
        assert golden.producer["numerics"]["attention"] != "chosen when a model is loaded"

    code, out, err = conformance("golden", "verify", "--directory", "theirs")
    assert (code, err) == (0, "")
    grades = [line.split(": ")[1].split(",")[0] for line in out.splitlines()[1:]]
    assert grades == ["rounding"] * 4


def test_the_reference_holds_the_project_s_goldens(tmp_path: Path) -> None:
    """Processes all the way down, as a user runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "golden", "verify", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CONFORMANCE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert content["backend"] == "reference"
    assert set(content["versions"]) == {"torch", "numpy", "safetensors"}
    assert set(content["goldens"]) == {trial.id for trial in golden_trials()}
    assert {golden["grade"] for golden in content["goldens"].values()} <= {"exact", "rounding"}
