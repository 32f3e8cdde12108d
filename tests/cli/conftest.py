"""What tests of the command line share: the command, in this process and an empty directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.cli import main

Conformance = Callable[..., tuple[int, str, str]]


@pytest.fixture
def conformance(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Conformance:
    """Runs the command in this process and an empty directory: (exit code, stdout, stderr)."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["conformance", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, out, err

    return run
