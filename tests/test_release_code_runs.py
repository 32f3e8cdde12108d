"""Released code, end to end: named by the user, run in a worker, reported by its hash, and judged.

Copies of the stand-ins play the released code. Broken by one thing each, they must turn cells red: that
is what the cases are for.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.registry import Backend
from conformance.case import case_directory
from conformance.cells import Cell, CellResult, judge
from conformance.checkpoints.release_code import dress, resolve
from conformance.checkpoints.store import open_checkpoint, write_checkpoint
from conformance.environments import ENVIRONMENTS, cache_directory
from conformance.families import family_of
from conformance.workers.host import Hello
from tests.backends.transformers.remote import Remote, RemoteAdapter
from tests.cases.chapters import all_cases
from tests.families.plamo3.sizes import tiny, tiny_2604
from tests.inline import InlineSession

pytest_plugins = ["tests.backends.transformers.engines"]

FAMILY = family_of("plamo3")
WINDOW = 4
SPECS = {"2604": tiny_2604(), "4k": tiny()}
# Left where it is run, and whether that is in a worker: the parent of this file's process is pytest.
MARKER = """
import os
from pathlib import Path
with Path({path!r}).open("a") as _marker:
    _marker.write(f"{{os.getpid()}}\\n")
"""


def snapshot(directory: Path, release: str, changes: Mapping[str, str] | None = None) -> Path:
    """A snapshot of released code, under names of its own; some text of the model's file replaced."""
    directory.mkdir(parents=True)
    (directory / "configuration_plamo.py").write_bytes(
        (FAMILY.standin / "configuration_plamo.py").read_bytes()
    )
    model = (FAMILY.standin / f"modeling_plamo_{release}.py").read_text()
    for old, new in (changes or {}).items():
        assert model.count(old) == 1
        model = model.replace(old, new)
    (directory / "modeling_plamo.py").write_text(model)
    names = {
        "AutoConfig": "configuration_plamo.Plamo3Config",
        "AutoModelForCausalLM": "modeling_plamo.Plamo3ForCausalLM",
    }
    (directory / "config.json").write_text(json.dumps({"model_type": "plamo3", "auto_map": names}))
    return directory


def marked(directory: Path, release: str) -> tuple[Path, Path]:
    """A snapshot that writes down when it is run, and where it does."""
    marker = directory.with_suffix(".marker")
    snapshot(directory, release)
    with (directory / "modeling_plamo.py").open("a") as file:
        file.write(MARKER.format(path=str(marker)))
    return directory, marker


def sha256(directory: Path) -> str:
    """As reports have it: over names and contents of the Python files."""
    digest = hashlib.sha256()
    for file in sorted(directory.glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


# One thing broken


@dataclass(frozen=True)
class Breakage:
    """One thing broken in a release's code: old and new text, and the first position where it shows."""

    release: str
    changes: Mapping[str, str]
    first_bad: int | None = None
    case: str = "reference/whole"


BROKEN = {
    "a band of W + 1 tokens": Breakage(
        "2604", {"keys - new - (window - 1)": "keys - new - window"}, first_bad=WINDOW
    ),
    "a band of W tokens": Breakage(
        "4k", {"diagonal=keys - new - window)": "diagonal=keys - new - (window - 1))"}, first_bad=WINDOW
    ),
    "the mixer's offset after the MLP": Breakage("2604", {"offset=5**-1.5": "offset=1 / 5"}, first_bad=0),
    "the MLP's offset after the mixer": Breakage("4k", {"offset=1 / 5": "offset=5**-1.5"}, first_bad=0),
    "tiled heads for repeated ones": Breakage(
        "4k",
        {
            "k.repeat_interleave(self.groups, dim=1), v.repeat_interleave(self.groups, dim=1)": (
                "k.repeat(1, self.groups, 1, 1), v.repeat(1, self.groups, 1, 1)"
            )
        },
        first_bad=0,
    ),
    "no amplitude": Breakage("2604", {"self.amplitude = 0.1 * math.log(factor) + 1": "pass"}),
    "a cache of W - 1 tokens": Breakage(
        "4k", {"slice(-window, None)": "slice(1 - window, None)"}, case="decode/token-by-token"
    ),
    "keys numbered from 0 in every chunk": Breakage(
        "2604", {"cos[keys - new :], sin[keys - new :]": "cos[:new], sin[:new]"}, case="decode/token-by-token"
    ),
}

Judge = Callable[..., CellResult]


@pytest.fixture(scope="module")
def judged(engine: Callable[[str], Remote], tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Judges a snapshot by a case on one tiny model."""
    root = tmp_path_factory.mktemp("checkpoints")
    oracle = ReferenceAdapter({})

    def judged(directory: Path, release: str, case_id: str) -> CellResult:
        (found,) = (r for r in FAMILY.releases if r.name == release)
        code = resolve(str(directory), found, "no-such-python")
        # Not told apart from a checkpoint that a user brought: so one process can run every copy.
        dressed = replace(dress(write_checkpoint(root, SPECS[release], 5), code, root), seed=None)
        backend = Backend(name=f"plamo3-{release}", title="", release_code=release)
        adapter = RemoteAdapter(engine(release))
        hello = Hello((release,), frozenset({"decode"}), ("float32",), {})
        session = InlineSession(oracle, {backend.name: adapter})
        cell = Cell(all_cases()[case_id], backend, "plamo3", release)
        return judge(session, cell, hello, (), examples=1, checkpoints=root, brought=dressed)

    return judged


@pytest.mark.parametrize("case_id", ["reference/whole", "decode/token-by-token"])
@pytest.mark.parametrize("release", ["2604", "4k"])
def test_a_copy_as_it_is_passes(release: str, case_id: str, judged: Judge, tmp_path: Path) -> None:
    result = judged(snapshot(tmp_path / "code", release), release, case_id)
    assert (result.status, result.reason, result.findings) == ("pass", "", [])
    assert result.worst > 0


@pytest.mark.parametrize("name", BROKEN)
def test_one_thing_broken_is_red(name: str, judged: Judge, tmp_path: Path) -> None:
    broken = BROKEN[name]
    result = judged(snapshot(tmp_path / "code", broken.release, broken.changes), broken.release, broken.case)
    assert result.status == "fail"
    assert result.grade == "divergent"
    verdict = result.findings[0].outcome.verdict
    assert verdict.problem == ""
    if broken.first_bad is not None:
        assert str(verdict.first_bad) == f"row 0 position {broken.first_bad}"


@pytest.mark.parametrize("name", ["a cache of W - 1 tokens", "keys numbered from 0 in every chunk"])
def test_what_is_broken_in_the_cache_is_seen_over_the_cache_alone(
    name: str, judged: Judge, tmp_path: Path
) -> None:
    broken = BROKEN[name]
    code = snapshot(tmp_path / "code", broken.release, broken.changes)
    assert judged(code, broken.release, "reference/whole").status == "pass"


# The whole way


@dataclass(frozen=True)
class Ran:
    """A test run in processes of its own."""

    code: int
    report: dict[str, Any]
    said: str

    def cells(self) -> list[tuple[str, str, str]]:
        return [(c["backend"], c["case"], c["status"]) for c in self.report["cells"]]

    def codes(self) -> dict[str, str]:
        return {name: ran["code"] for name, ran in self.report["backends"].items()}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """Runs one cheap case, with a cache of its own beside the user's environments."""
    for backend, name in (("plamo3-2604", "transformers-5"), ("plamo3-4k", "transformers-4")):
        if not ENVIRONMENTS[name].is_ready():
            pytest.fail(f"environment {name} is missing; make it with: conformance env sync {backend}")
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "environments").symlink_to(cache_directory() / "environments")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*arguments: str, **environment: str) -> Ran:
        report = tmp_path / "report.json"
        plain = ["-q", "-p", "no:cacheprovider", "-c", "pytest.ini", "--rootdir", "."]
        options = ["--examples", "1", "--json", str(report), *arguments]
        command = [sys.executable, "-m", "pytest", str(case_directory()), "-k", "whole", *plain, *options]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "CONFORMANCE_CACHE": str(cache), **environment},
        )
        said = done.stdout + done.stderr
        return Ran(done.returncode, json.loads(report.read_text()) if report.is_file() else {}, said)

    return run


def test_code_that_is_named_is_run_in_workers_and_reported_by_its_hash(
    run: Callable[..., Ran], tmp_path: Path
) -> None:
    """One release named by the option, the other by its environment variable."""
    late, late_marker = marked(tmp_path / "late", "2604")
    short, short_marker = marked(tmp_path / "short", "4k")
    ran = run(
        "--backend=plamo3-2604",
        "--backend=plamo3-4k",
        f"--release-code=2604={late}",
        CONFORMANCE_RELEASE_CODE_4K=str(short),
    )
    assert (ran.code, ran.cells()) == (
        0,
        [("plamo3-2604", "reference/whole", "pass"), ("plamo3-4k", "reference/whole", "pass")],
    ), ran.said
    assert ran.codes() == {"plamo3-2604": f"sha256:{sha256(late)}", "plamo3-4k": f"sha256:{sha256(short)}"}
    ids = [marker.read_text().split() for marker in (late_marker, short_marker)]
    assert all(len(set(found)) == 1 for found in ids)
    assert ids[0] != ids[1]


def test_code_that_is_not_named_is_not_run(run: Callable[..., Ran], tmp_path: Path) -> None:
    """A checkpoint that a user brings may carry code: bringing it does not name that code."""
    carried, marker = marked(tmp_path / "carried", "2604")
    (release,) = (r for r in FAMILY.releases if r.name == "2604")
    generated = write_checkpoint(tmp_path / "models", SPECS["2604"], 5)
    brought = dress(generated, resolve(str(carried), release, "no-such-python"), tmp_path / "models")
    open_checkpoint(brought.path)
    ran = run("--backend=plamo3-2604", f"--checkpoint={brought.path}")
    assert not marker.exists()
    assert (ran.code, ran.cells()) == (0, [("plamo3-2604", "reference/whole", "pass")]), ran.said
    assert ran.codes() == {"plamo3-2604": "stand-in"}
