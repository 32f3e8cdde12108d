"""The golden directory: what was written is read again, tampering is named, and it is all or nothing."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.checkpoints.container import write_container
from conformance.checkpoints.layout import Layout
from conformance.errors import BadInput
from conformance.families.base import Spec
from conformance.goldens import store
from conformance.goldens.store import (
    Agreement,
    Golden,
    check_replaceable,
    golden_directory,
    read_goldens,
    weights_hash,
    write_goldens,
)
from tests.conftest import ROOT
from tests.goldens.sessions import WHOLE

AGREED = (
    Agreement("plamo3-2604", "stand-in", {"transformers": "5.12.1"}, "rounding", 1.25),
    Agreement("vllm", "its own", {"vllm": "0.32.0"}, "exact", 0.0),
)


def golden(spec: Spec, name: str, **changes: Any) -> Golden:
    logits = np.arange(10 * spec.vocab_size, dtype=np.float32).reshape(1, 10, -1) / (7 + len(name))
    content = {
        "spec": spec,
        "seed": 1,
        "layout": Layout(),
        "weights": weights_hash(spec, 1, Layout()),
        "feed": WHOLE,
        "logits": logits,
        "producer": {"backend": "reference", "code": "its own", "versions": {"torch": "2.13.0"}},
        "command": "conformance golden record --directory golden",
        "agreed": AGREED,
        **changes,
    }
    return Golden(id=name, **content)


@pytest.fixture
def goldens(spec: Spec) -> list[Golden]:
    """Two of them, the one that comes second in the alphabet first."""
    return [
        golden(spec, "b-whole", seed=2),
        golden(spec, "a-decode", feed=WHOLE.token_by_token(5), agreed=()),
    ]


@pytest.fixture
def directory(tmp_path: Path, goldens: list[Golden]) -> Path:
    write_goldens(tmp_path / "golden", goldens)
    return tmp_path / "golden"


def content_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, hidden ones included."""
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


# Written and read


def test_what_was_written_is_read_again(directory: Path, goldens: list[Golden]) -> None:
    read = read_goldens(directory)
    assert list(read) == ["a-decode", "b-whole"]
    for one in goldens:
        assert read[one.id] == one
        assert read[one.id].logits.dtype == np.float32
        np.testing.assert_array_equal(read[one.id].logits, one.logits)


def test_equal_goldens_are_equal_bytes(directory: Path, goldens: list[Golden], tmp_path: Path) -> None:
    write_goldens(tmp_path / "again", reversed(goldens))
    write_goldens(tmp_path / "copied", read_goldens(directory).values())
    assert content_of(directory) == content_of(tmp_path / "again") == content_of(tmp_path / "copied")
    assert set(content_of(directory)) == {
        "manifest.json",
        "a-decode.safetensors",
        "b-whole.safetensors",
    }


def test_the_manifest_holds_the_whole_pedigree(directory: Path, spec: Spec) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["version"] == 2
    entry = manifest["goldens"]["b-whole"]
    seal = entry.pop("seal")
    assert entry == {
        "family": "plamo3",
        "release": "2604",
        "spec": spec.to_config(),
        "seed": 2,
        "layout": {"dtype": "float32", "recipe": "telling"},
        "weights": weights_hash(spec, 1, Layout()),
        "feed": WHOLE.to_dict(),
        "sha256": hashlib.sha256((directory / "b-whole.safetensors").read_bytes()).hexdigest(),
        "producer": {"backend": "reference", "code": "its own", "versions": {"torch": "2.13.0"}},
        "command": "conformance golden record --directory golden",
        "agreed": [
            {
                "backend": "plamo3-2604",
                "code": "stand-in",
                "versions": {"transformers": "5.12.1"},
                "grade": "rounding",
                "ratio": 1.25,
            },
            {
                "backend": "vllm",
                "code": "its own",
                "versions": {"vllm": "0.32.0"},
                "grade": "exact",
                "ratio": 0.0,
            },
        ],
    }
    assert seal == hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def test_a_diff_of_two_manifests_shows_the_keys_that_changed(
    directory: Path, goldens: list[Golden], tmp_path: Path
) -> None:
    write_goldens(tmp_path / "other", [replace(goldens[0], seed=3), goldens[1]])
    texts = [(d / "manifest.json").read_text().splitlines() for d in (directory, tmp_path / "other")]
    changed = [
        line for line in difflib.unified_diff(*texts, n=0, lineterm="") if line[:4] in ("-   ", "+   ")
    ]
    assert changed[:2] == ['-   "seed": 2,', '+   "seed": 3,']
    assert [line[1:].strip().split(":")[0] for line in changed[2:]] == ['"seal"', '"seal"']


def test_the_hash_of_weights_is_of_their_values(spec: Spec) -> None:
    hashes = [weights_hash(spec, seed, Layout(recipe=r)) for seed in (1, 2) for r in ("telling", "fresh")]
    assert len(set(hashes)) == 4
    assert weights_hash(spec, 1, Layout(dtype="bfloat16", shards=2)) == hashes[0]
    # Held here for good: other weights under an old spec and seed make every golden of theirs worthless.
    assert hashes[0] == "318292f5c9cec549721a2013ebafa3d231315774552308338c255fc4d5028d74"


def test_the_project_s_goldens_are_beside_the_package_or_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert golden_directory() == ROOT / "golden"
    package = tmp_path / "site-packages" / "conformance"
    (package / "golden").mkdir(parents=True)
    monkeypatch.setattr(store.conformance, "__file__", str(package / "__init__.py"))
    assert golden_directory() == package / "golden"


# Tampered with


def edit_manifest(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def tamper(directory: Path) -> None:
        file = directory / "manifest.json"
        content = json.loads(file.read_text())
        edit(content)
        file.write_text(json.dumps(content))

    return tamper


def edit_entry(*, sealed: bool = False, **changes: Any) -> Callable[[Path], None]:
    """Sets keys of b-whole's entry; None takes one away. Sealed: by someone who knows how to."""

    def edit(content: dict[str, Any]) -> None:
        entry = {k: v for k, v in {**content["goldens"]["b-whole"], **changes}.items() if v is not None}
        if sealed:
            entry["seal"] = store._seal(entry)
        content["goldens"]["b-whole"] = entry

    return edit_manifest(edit)


def replace_manifest(text: str) -> Callable[[Path], None]:
    def tamper(directory: Path) -> None:
        (directory / "manifest.json").write_text(text)

    return tamper


def rewrite(change: Callable[[bytes], bytes], name: str = "b-whole") -> Callable[[Path], None]:
    def tamper(directory: Path) -> None:
        file = directory / f"{name}.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return tamper


def swap_files(directory: Path) -> None:
    os.rename(directory / "a-decode.safetensors", directory / "spare")
    os.rename(directory / "b-whole.safetensors", directory / "a-decode.safetensors")
    os.rename(directory / "spare", directory / "b-whole.safetensors")


def other_tensor(directory: Path) -> None:
    """A file that is what the manifest says, but no golden."""
    file = directory / "b-whole.safetensors"
    write_container(file, {"weights": np.zeros(3, np.float32)}, "float32")
    edit_entry(sealed=True, sha256=hashlib.sha256(file.read_bytes()).hexdigest())(directory)


def no_container(directory: Path) -> None:
    file = directory / "b-whole.safetensors"
    file.write_bytes(b"nothing")
    edit_entry(sealed=True, sha256=hashlib.sha256(file.read_bytes()).hexdigest())(directory)


def remove(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


EDITED = "golden b-whole was edited: its entry of manifest.json breaks its seal [{d}/manifest.json]"
FILE = "golden b-whole was edited or truncated: its SHA-256 is not the manifest's [{d}/b-whole.safetensors]"
MALFORMED = "golden b-whole: its entry is malformed: {{}} [{d}/manifest.json]"

TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (
        remove("manifest.json"),
        "manifest.json is missing, but goldens need it [{d}]",
    ),
    "a manifest that is not JSON": (
        replace_manifest("{nope"),
        "manifest.json is no manifest of goldens: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1) [{d}/manifest.json]",
    ),
    "a manifest that is a list": (
        replace_manifest("[]"),
        "manifest.json is no manifest of goldens: list indices must be integers or slices, not str "
        "[{d}/manifest.json]",
    ),
    "a manifest without goldens": (
        replace_manifest('{"version": 2}'),
        "manifest.json is no manifest of goldens: 'goldens' [{d}/manifest.json]",
    ),
    "goldens that are a list": (
        edit_manifest(lambda content: content.update(goldens=[])),
        "goldens = list, but should be an object [{d}/manifest.json]",
    ),
    "a later version": (
        edit_manifest(lambda content: content.update(version=3)),
        "version = 3, but should be 2 [{d}/manifest.json]",
    ),
    "missing": (
        remove("b-whole.safetensors"),
        "golden b-whole is missing: manifest.json names it, but there is no b-whole.safetensors [{d}]",
    ),
    "unused": (
        edit_manifest(lambda content: content["goldens"].pop("b-whole")),
        "golden b-whole is unused: no entry of manifest.json names it [{d}/b-whole.safetensors]",
    ),
    "one logit edited": (rewrite(lambda b: b[:-2] + bytes([b[-2] ^ 1]) + b[-1:]), FILE),
    "a header edited": (rewrite(lambda b: b.replace(b'"pt"', b'"np"')), FILE),
    "truncated": (rewrite(lambda b: b[:-100]), FILE),
    "empty": (rewrite(lambda b: b""), FILE),
    "something appended": (rewrite(lambda b: b + b"\0"), FILE),
    "two files swapped": (
        swap_files,
        "golden a-decode was edited or truncated: its SHA-256 is not the manifest's "
        "[{d}/a-decode.safetensors]",
    ),
    "the hash edited": (edit_entry(sha256="0" * 64), EDITED),
    "the seed edited": (edit_entry(seed=3), EDITED),
    "the feed edited": (edit_entry(feed=WHOLE.split([4]).to_dict()), EDITED),
    "the producer edited": (edit_entry(producer={"backend": "vllm", "code": "its own"}), EDITED),
    "a grade edited": (edit_entry(agreed=[]), EDITED),
    "the command edited": (edit_entry(command="by hand"), EDITED),
    "a key added": (edit_entry(note="trust me"), EDITED),
    "a key removed": (edit_entry(weights=None), EDITED),
    "the seal removed": (edit_entry(seal=None), EDITED),
    "the seal edited": (edit_entry(seal="0" * 64), EDITED),
    "an entry that is a list": (
        edit_manifest(lambda content: content["goldens"].update({"b-whole": []})),
        "golden b-whole is no entry but list [{d}/manifest.json]",
    ),
    "a file of another tensor": (
        other_tensor,
        "golden b-whole holds no logits: 'logits' [{d}/b-whole.safetensors]",
    ),
    "a file that is no container": (
        no_container,
        "golden b-whole holds no logits: Error while deserializing header: header too small "
        "[{d}/b-whole.safetensors]",
    ),
    "sealed without weights": (
        edit_entry(sealed=True, weights=None),
        MALFORMED.replace("{{}}", "KeyError: 'weights'"),
    ),
    "sealed with another layout": (
        edit_entry(sealed=True, layout={"packed": True}),
        MALFORMED.replace("{{}}", "TypeError: Layout.__init__() got an unexpected keyword argument 'packed'"),
    ),
    "sealed with an agreement that is none": (
        edit_entry(sealed=True, agreed=["vllm"]),
        MALFORMED.replace(
            "{{}}",
            "TypeError: conformance.goldens.store.Agreement() argument after ** must be a mapping, not str",
        ),
    ),
    "sealed with an unknown family": (
        edit_entry(sealed=True, family="llama"),
        MALFORMED.replace("{{}}", "model_type = 'llama', but should be plamo3 or gemma4"),
    ),
    "sealed with a spec that is none": (
        edit_entry(sealed=True, spec={}),
        MALFORMED.replace("{{}}", "vocab_size is missing, but plamo3 needs it"),
    ),
    "sealed with a feed that is none": (
        edit_entry(sealed=True, feed={"tokens": [[1]]}),
        MALFORMED.replace("{{}}", "steps is missing, but a feed needs it"),
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with_is_named(name: str, directory: Path) -> None:
    tamper, message = TAMPERED[name]
    tamper(directory)
    with pytest.raises(BadInput) as caught:
        read_goldens(directory)
    assert str(caught.value) == message.format(d=directory)


def test_the_order_of_keys_is_no_edit(directory: Path, goldens: list[Golden]) -> None:
    file = directory / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()), sort_keys=True, indent=8))
    assert read_goldens(directory) == {one.id: one for one in goldens}


# What may be replaced


def test_nothing_an_empty_directory_and_goldens_may_be_replaced(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nothing", tmp_path / "empty", directory):
        check_replaceable(path)


def a_checkout(directory: Path) -> None:
    """The directory that holds the directory of goldens: what `--directory .` would replace."""
    (directory / "golden").mkdir()
    (directory / "manifest.json").write_text("{}")


def weights_without_a_manifest(directory: Path) -> None:
    write_container(directory / "model.safetensors", {"w": np.zeros(3, np.float32)}, "float32")


def goldens_and_notes(directory: Path) -> None:
    (directory / "manifest.json").write_text("{}")
    (directory / "README.md").write_text("do not lose me")


FOREIGN: dict[str, tuple[Callable[[Path], None], str]] = {
    "a checkout": (a_checkout, "golden"),
    "weights without a manifest": (weights_without_a_manifest, "model.safetensors"),
    "goldens and notes": (goldens_and_notes, "README.md"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_directory_that_holds_anything_else_is_not_replaced(
    name: str, tmp_path: Path, goldens: list[Golden]
) -> None:
    fill, what = FOREIGN[name]
    place = tmp_path / "place"
    place.mkdir()
    fill(place)
    before = content_of(tmp_path)
    with pytest.raises(BadInput) as caught:
        write_goldens(place, goldens)
    assert str(caught.value) == (f"{what} is no golden, but recording replaces the whole directory [{place}]")
    assert content_of(tmp_path) == before


def test_a_file_is_not_replaced(tmp_path: Path, goldens: list[Golden]) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput) as caught:
        write_goldens(tmp_path / "file", goldens)
    assert str(caught.value) == f"a file is no directory of goldens [{tmp_path / 'file'}]"
    assert (tmp_path / "file").read_text() == "mine"


# All or nothing


def test_writing_replaces_all(directory: Path, goldens: list[Golden], tmp_path: Path) -> None:
    write_goldens(directory, goldens[:1])
    assert set(content_of(tmp_path)) == {"golden/manifest.json", "golden/b-whole.safetensors"}
    assert list(read_goldens(directory)) == ["b-whole"]


def test_a_directory_is_made_with_those_above_it(tmp_path: Path, goldens: list[Golden]) -> None:
    write_goldens(tmp_path / "not" / "yet", goldens)
    assert len(read_goldens(tmp_path / "not" / "yet")) == 2


def test_the_working_directory_can_be_written(
    directory: Path, goldens: list[Golden], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    write_goldens(Path(), goldens[:1])
    assert list(read_goldens(directory)) == ["b-whole"]


def test_a_link_stays_a_link(directory: Path, goldens: list[Golden], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(directory)
    write_goldens(tmp_path / "link", goldens[:1])
    assert (tmp_path / "link").is_symlink()
    assert list(read_goldens(directory)) == ["b-whole"]


def fail_at(monkeypatch: pytest.MonkeyPatch, function: str, call: int, error: BaseException) -> None:
    """Makes a function that the store calls fail at its nth call."""
    holder = store if function == "write_container" else store.os
    real = getattr(holder, function)
    calls = iter(range(1, 100))

    def failing(*arguments: Any) -> Any:
        if next(calls) == call:
            raise error
        return real(*arguments)

    monkeypatch.setattr(holder, function, failing)


FAILURES = {
    "while the second file is written": ("write_container", 2, OSError("disk full")),
    "before the old directory is moved away": ("rename", 1, OSError("no leave")),
    "after the old directory was moved away": ("rename", 2, OSError("no leave")),
    "interrupted after the old directory was moved away": ("rename", 2, KeyboardInterrupt()),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_leaves_everything_as_it_was(
    name: str, directory: Path, goldens: list[Golden], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, call, error = FAILURES[name]
    before = content_of(tmp_path)
    fail_at(monkeypatch, function, call, error)
    with pytest.raises(type(error)):
        write_goldens(directory, [replace(one, command="another") for one in goldens])
    monkeypatch.undo()
    assert content_of(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["golden"]
    assert len(read_goldens(directory)) == 2


@pytest.mark.parametrize(("function", "call"), [("write_container", 2), ("rename", 1)])
def test_a_failure_at_the_first_time_leaves_nothing(
    function: str, call: int, goldens: list[Golden], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, function, call, OSError("no leave"))
    with pytest.raises(OSError, match="no leave"):
        write_goldens(tmp_path / "golden", goldens)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
from pathlib import Path
from conformance.goldens import store

real, calls = store.write_container, []

def dying(*arguments):
    calls.append(arguments)
    if len(calls) == 2:
        os._exit(9)
    return real(*arguments)

store.write_container = dying
directory = Path(sys.argv[1])
store.write_goldens(directory, store.read_goldens(directory).values())
"""


def test_a_process_that_is_killed_half_way_leaves_the_goldens_as_they_were(directory: Path) -> None:
    before = content_of(directory)
    command = [sys.executable, "-c", KILLED, str(directory)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stderr) == (9, b"")
    assert content_of(directory) == before
