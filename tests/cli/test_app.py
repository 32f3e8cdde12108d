"""The command as a whole: what it says without arguments, and that nothing ends in a traceback."""

from __future__ import annotations

import pytest

from conformance.cli import app as app_module
from conformance.errors import BadInput
from tests.cli.conftest import Conformance


def test_without_arguments_it_shows_its_commands(conformance: Conformance) -> None:
    code, out, err = conformance()
    assert code in (0, 2)
    for command in ("list", "check", "env", "replay"):
        assert command in out + err


def test_an_unknown_command(conformance: Conformance) -> None:
    code, out, err = conformance("chekc")
    assert (code, out) == (2, "")
    assert "No such command 'chekc'." in err
    assert "Traceback" not in err


def test_check_needs_a_backend(conformance: Conformance) -> None:
    code, out, err = conformance("check")
    assert (code, out) == (2, "")
    assert "Missing option '--backend'." in err


def test_bad_input_is_one_line_on_stderr(conformance: Conformance, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise BadInput.value("head_dim", 3, "even", "config.json")

    monkeypatch.setattr(app_module, "app", fail)
    assert conformance("list") == (2, "", "conformance: head_dim = 3, but should be even [config.json]\n")
