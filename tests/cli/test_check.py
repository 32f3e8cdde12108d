"""`conformance check`: exit 0 conforms, 1 does not, 2 could not be judged; bad input is one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from conformance.checkpoints.container import write_container
from conformance.checkpoints.store import Checkpoint
from conformance.cli import check as check_module
from conformance.cli.check import _sentence
from tests.cli.conftest import Conformance
from tests.conftest import ROOT


def cell(status: str, case: str = "decode/token-by-token", reason: str = "") -> dict[str, Any]:
    return {"status": status, "case": case, "reason": reason}


SENTENCES = {
    "all green": ([cell("pass"), cell("n/a")], 0, "mine conforms in 1 of 1 cells"),
    "green but for known differences": (
        [cell("pass"), cell("known"), cell("n/a")],
        0,
        "mine conforms in 2 of 2 cells, with 1 known differences",
    ),
    "red": (
        [cell("pass"), cell("fail"), cell("error", "window/causality"), cell("fail"), cell("known")],
        1,
        "mine does not conform: 3 of 5 cells differ (decode/token-by-token, window/causality), "
        "with 1 known differences",
    ),
    "all red": ([cell("fail")], 1, "mine does not conform: 1 of 1 cells differ (decode/token-by-token)"),
    "nothing but errors": (
        [cell("error", reason="worker hung"), cell("error"), cell("n/a")],
        2,
        "mine could not be judged: worker hung",
    ),
    "nothing applies": ([cell("n/a")], 2, "mine could not be judged: no case applies to it"),
    "nothing ran": ([], 2, "mine could not be judged: no case applies to it"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_closing_sentence(name: str) -> None:
    cells, code, sentence = SENTENCES[name]
    assert _sentence("mine", cells) == (code, sentence)


@pytest.mark.parametrize(
    ("code", "status"), [(2, "pass"), (3, "pass"), (1, "pass"), (4, "pass"), (3, "fail")]
)
def test_a_run_that_broke_off_is_no_verdict(
    code: int, status: str, conformance: Conformance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(arguments: list[str], *, quiet: bool) -> int:
        report = Path(arguments[arguments.index("--json") + 1])
        report.write_text(json.dumps({"cells": [cell(status)]}))
        return code

    monkeypatch.setattr(check_module, "_run", broken_off)
    sentence = "reference could not be judged: the run broke off\n"
    assert conformance("check", "--backend", "reference") == (2, sentence, "")


BAD_INPUT = {
    "an unknown backend": (
        ["--backend", "refrence"],
        "backend = 'refrence', but should be one of reference, plamo3-2604, plamo3-4k, gemma4-eager, "
        "gemma4-sdpa, vllm, mlx, llama-cpp, llama-cpp-swa-full, module:Class, or a worker's command; "
        "did you mean reference?",
    ),
    "an unknown release": (
        ["--backend", "reference", "--release", "2605"],
        "release = '2605', but should be one of 2604, 4k, gemma-4",
    ),
    "an unknown family": (
        ["--backend", "reference", "--family", "plamo2"],
        "family = 'plamo2', but should be one of plamo3, gemma4",
    ),
    "no examples": (
        ["--backend", "reference", "--examples", "0"],
        "--examples = 0, but should be 1 or more",
    ),
    "an environment that was not made": (
        ["--backend", "vllm"],
        "environment vllm is missing; make it with: conformance env sync vllm",
    ),
    "released code for no release": (
        ["--backend", "reference", "--release-code", "2605=hub"],
        "release = '2605', but should be one of 2604, 4k [--release-code 2605=hub]",
    ),
    "released code from nowhere": (
        ["--backend", "reference", "--release-code", "2604"],
        "--release-code = '2604', but should be RELEASE=DIRECTORY or RELEASE=hub",
    ),
}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest is left before there is a session, so it need not be another process."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        assert command[1:3] == ["-m", "pytest"]
        return subprocess.CompletedProcess(command, int(pytest.main(command[3:])))

    monkeypatch.setattr(check_module.subprocess, "run", run)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input(name: str, conformance: Conformance, private_cache: Path) -> None:
    arguments, message = BAD_INPUT[name]
    assert conformance("check", *arguments) == (2, "", f"conformance: {message}\n")
    assert conformance("check", *arguments, "--json") == (2, "", f"conformance: {message}\n")
    assert list(Path.cwd().iterdir()) == []
    assert not private_cache.exists()


def edited(**changes: object) -> Callable[[Path], None]:
    """Sets keys of config.json; None takes one away."""

    def edit(directory: Path) -> None:
        file = directory / "config.json"
        config = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return edit


def truncated(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def misshapen(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1]
    write_container(directory / "model.safetensors", weights, "float32")


def one_more(directory: Path) -> None:
    extra = {"lm_head.bias": np.zeros(97, np.float32)}
    write_container(directory / "extra.safetensors", extra, "float32")


BAD_CHECKPOINTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (
        lambda d: (d / "config.json").unlink(),
        "config.json is missing, but a checkpoint directory needs it [{d}]",
    ),
    "config.json that is not JSON": (
        lambda d: (d / "config.json").write_text("{nope"),  # type: ignore[dict-item, return-value]
        "config.json is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1) [{d}/config.json]",
    ),
    "config.json that is a list": (
        lambda d: (d / "config.json").write_text("[]"),  # type: ignore[dict-item, return-value]
        "config.json = list, but should be an object [{d}/config.json]",
    ),
    "no model_type": (
        edited(model_type=None),
        "model_type is missing, but names the family [{d}/config.json]",
    ),
    "a family that is not known": (
        edited(model_type="llama"),
        "model_type = 'llama', but should be plamo3 or gemma4_text or gemma4 [{d}/config.json]",
    ),
    "a missing key": (
        edited(head_dim=None),
        "head_dim is missing, but plamo3 needs it [{d}/config.json]",
    ),
    "heads that do not divide": (
        edited(num_key_value_heads=4),
        "num_attention_heads = 6, but should be a multiple of num_key_value_heads (4) [{d}/config.json]",
    ),
    "no weights": (
        lambda d: (d / "model.safetensors").unlink(),
        "model.safetensors is missing, but a checkpoint directory needs it [{d}]",
    ),
    "a tensor of another shape": (
        misshapen,
        "model.norm.weight: shape = [47], but should be [48] [{d}/model.safetensors]",
    ),
    "a config that asks for another shape": (
        edited(head_dim=32),
        "model.layers.layers.0.mixer.qkv_proj.weight: shape = [160, 48], but should be [320, 48] "
        "[{d}/model.safetensors]",
    ),
    "a tensor that is not there": (
        edited(num_hidden_layers=3),
        "model.layers.layers.2.mixer.qkv_proj.weight is missing, but its config.json asks for [160, 48] "
        "[{d}]",
    ),
    "a tensor too many": (one_more, "lm_head.bias is not a parameter of plamo3 [{d}/extra.safetensors]"),
}


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", BAD_CHECKPOINTS)
def test_a_bad_checkpoint(
    name: str, conformance: Conformance, checkpoint: Checkpoint, private_cache: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "brought"
    shutil.copytree(checkpoint.path, directory)
    spoil, message = BAD_CHECKPOINTS[name]
    spoil(directory)
    code, out, err = conformance("check", "--backend", "reference", "--checkpoint", str(directory))
    assert (code, out, err) == (2, "", f"conformance: {message.format(d=directory)}\n")
    assert list(Path.cwd().iterdir()) == []
    assert not private_cache.exists()


@pytest.mark.usefixtures("in_this_process")
def test_a_truncated_file(
    conformance: Conformance, checkpoint: Checkpoint, private_cache: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "brought"
    shutil.copytree(checkpoint.path, directory)
    truncated(directory)
    code, out, err = conformance("check", "--backend", "reference", "--checkpoint", str(directory))
    file = directory / "model.safetensors"
    assert (code, out) == (2, "")
    assert err.startswith("conformance: model.safetensors is not a whole safetensors file: ")
    assert err.endswith(f" [{file}]\n")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("in_this_process")
def test_a_worker_that_does_not_start(conformance: Conformance) -> None:
    name = f"{sys.executable} -S -c 'raise SystemExit(5)'"
    assert conformance("check", "--backend", name) == (
        2,
        "",
        f"conformance: backend {name} could not be started: exited with code 5 during hello\n",
    )


class TestForReal:
    """Processes all the way down: the command, pytest, the reference, and the one that is judged."""

    def run(self, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "conformance", "check", "--examples", "1", "--case", "whole", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            env={**os.environ, "CONFORMANCE_CACHE": str(directory / "cache")},
        )

    def test_the_reference_conforms(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, "--backend", "reference", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        report = json.loads(done.stdout)
        assert [(c["case"], c["release"], c["status"]) for c in report["cells"]] == [
            ("reference/whole", "2604", "pass"),
            ("reference/whole", "4k", "pass"),
            ("reference/whole", "gemma-4", "pass"),
        ]
        assert report["backends"]["reference"]["code"] == "its own"

    def test_one_thing_broken_does_not(self, tmp_path: Path) -> None:
        (tmp_path / "tests").symlink_to(ROOT / "tests")
        done = self.run(tmp_path, "--backend", "tests.adapters:WindowPlusOne")
        assert done.returncode == 1
        assert done.stderr == ""
        assert "Traceback" not in done.stdout
        assert done.stdout.splitlines()[-1] == (
            "tests.adapters:WindowPlusOne does not conform: 1 of 1 cells differ (reference/whole)"
        )
