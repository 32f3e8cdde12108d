"""Deviation files: what they may hold, what they cover, and that ours can still be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import bench
from conformance.backends.registry import backend_named, known_backends
from conformance.case import case_directory
from conformance.deviations import Deviation, read_deviations
from conformance.errors import BadInput

ENTRY = """
[[deviation]]
release = "2604"
case = "training/*"
claims = ["*: training, T = W+1", "mask"]
what = "one token too far"
evidence = "docs/plamo3.md §8"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(ENTRY + ENTRY.replace("2604", "4k"))
    return tmp_path


def test_reading(directory: Path) -> None:
    first, second = read_deviations(directory, ["other", "mine"])
    assert first == Deviation(
        backend="mine",
        release="2604",
        case=("training/*",),
        claims=("*: training, T = W+1", "mask"),
        what="one token too far",
        evidence="docs/plamo3.md §8",
        source="mine.toml entry 1",
    )
    assert (second.release, second.source) == ("4k", "mine.toml entry 2")


def test_a_backend_without_a_file_has_none(directory: Path) -> None:
    assert read_deviations(directory, ["other"]) == []
    assert read_deviations(directory / "nowhere", ["mine"]) == []


def test_what_an_entry_covers(directory: Path) -> None:
    entry = read_deviations(directory, ["mine"])[0]
    assert entry.covers("mine", "2604", "training/mask")
    assert not entry.covers("yours", "2604", "training/mask")
    assert not entry.covers("mine", "4k", "training/mask")
    assert not entry.covers("mine", "2604", "decode/training/mask")


def test_one_entry_for_several_cases(directory: Path) -> None:
    several = ENTRY.replace('"training/*"', '["decode/*", "prefill/split"]')
    (directory / "mine.toml").write_text(several)
    (entry,) = read_deviations(directory, ["mine"])
    cases = ("decode/token-by-token", "prefill/split", "prefill/other", "training/mask")
    assert [case for case in cases if entry.covers("mine", "2604", case)] == list(cases[:2])


def test_what_an_entry_explains(directory: Path) -> None:
    entry = read_deviations(directory, ["mine"])[0]
    assert entry.explains("reference: training, T = W+1", "")
    assert entry.explains("mask", "")
    assert not entry.explains("Mask", "")
    assert not entry.explains("reference: training, T = W+11", "")
    assert not entry.explains("masks", "")


def test_errors_are_explained_by_name_only(directory: Path) -> None:
    """An entry about values does not excuse a crash, and one about a crash does not excuse another."""
    values = read_deviations(directory, ["mine"])[0]
    assert not values.explains("mask", "failed: RuntimeError: no kernel")
    (directory / "mine.toml").write_text(ENTRY + 'error = "failed: * no kernel*"\n')
    (crash,) = read_deviations(directory, ["mine"])
    assert crash.explains("mask", "failed: RuntimeError: no kernel for head size 24")
    assert not crash.explains("mask", "died: exited with code 11 during run")
    assert not crash.explains("mask", "")
    assert not crash.explains("other", "failed: RuntimeError: no kernel")


MALFORMED = {
    "no TOML": ("release = ", "mine.toml is not TOML: Invalid value (at end of document) [{file}]"),
    "a key is missing": (
        ENTRY.replace('what = "one token too far"\n', ""),
        "what is missing, but a deviation needs it [mine.toml entry 1]",
    ),
    "a key too many": (
        ENTRY + 'author = "me"\n',
        "author is not a key of a deviation: case, claims, error, evidence, release, what "
        "[mine.toml entry 1]",
    ),
    "the second entry": (
        ENTRY + ENTRY + "until = 2027\n",
        "until is not a key of a deviation: case, claims, error, evidence, release, what [mine.toml entry 2]",
    ),
    "another key in the file": (
        ENTRY.replace("[[deviation]]", "[[deviations]]"),
        "deviations is not a key of a deviation file: deviation [{file}]",
    ),
    "one table": (
        ENTRY.replace("[[deviation]]", "[deviation]"),
        "deviation = 'dict', but should be an array of tables [{file}]",
    ),
    "a release that is a number": (
        ENTRY.replace('"2604"', "2604"),
        "release = 2604, but should be a string [mine.toml entry 1]",
    ),
    "a claim that is a number": (
        ENTRY.replace('"mask"]', "7]"),
        "claims = ['*: training, T = W+1', 7], but should be a list of claim label patterns "
        "[mine.toml entry 1]",
    ),
    "no case": (
        ENTRY.replace('"training/*"', "[]"),
        "case = [], but should be a pattern of case ids, or a list of them [mine.toml entry 1]",
    ),
    "claims as a string": (
        ENTRY.replace('["*: training, T = W+1", "mask"]', '"mask"'),
        "claims = 'mask', but should be a list of claim label patterns [mine.toml entry 1]",
    ),
    "no claims": (
        ENTRY.replace('["*: training, T = W+1", "mask"]', "[]"),
        "claims = [], but should be a list of claim label patterns [mine.toml entry 1]",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file(name: str, tmp_path: Path) -> None:
    text, message = MALFORMED[name]
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_deviations(tmp_path, ["mine"])
    assert str(caught.value) == message.format(file=file)


def test_every_file_of_ours_belongs_to_a_backend_and_can_be_read() -> None:
    directory = case_directory() / "deviations"
    names = {file.stem for file in directory.glob("*.toml")}
    assert names <= set(known_backends())
    assert len(read_deviations(directory, sorted(names))) >= len(names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {'"training/*"': '"trainig/*"'},
            "case = 'trainig/*', but should be a pattern that matches a case [reference.toml entry 1]",
        ),
        (
            {'"2604"': '"2605"'},
            "release = '2605', but should be one of 2604, 4k, gemma-4 [reference.toml entry 1]",
        ),
    ],
)
def test_an_entry_that_can_match_nothing_stops_the_run(
    change: dict[str, str],
    message: str,
    tmp_path: Path,
    private_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = ENTRY
    for old, new in change.items():
        text = text.replace(old, new)
    (tmp_path / "deviations").mkdir()
    (tmp_path / "deviations" / "reference.toml").write_text(text)
    monkeypatch.setattr(bench, "case_directory", lambda: tmp_path)
    options = bench.Options((backend_named("reference"),), ("plamo3",), ("2604", "4k"))
    with pytest.raises(BadInput) as caught:
        bench.Bench(options, tmp_path)
    assert str(caught.value) == message
