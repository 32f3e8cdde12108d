"""The test's side of calls.py: one process for each engine, started once and shared by every test."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import conformance
from conformance.backends.registry import backend_named
from conformance.environments import ENVIRONMENTS
from conformance.errors import BadInput, Refused, Unsupported
from conformance.feeds import Feed
from conformance.workers.adapter import Adapter
from tests.conftest import ROOT

SECONDS = 120.0
_KINDS: Mapping[str, type[Exception]] = {"BadInput": BadInput, "Refused": Refused, "Unsupported": Unsupported}


class Raised(Exception):
    """A call raised; the message begins with the exception's type."""


class Remote:
    """A process in the environment of one backend.

    Args:
        backend: `plamo3-2604` or `plamo3-4k`.
    """

    def __init__(self, backend: str) -> None:
        environment = ENVIRONMENTS[backend_named(backend).environment or ""]
        if not environment.is_ready():
            pytest.fail(
                f"environment {environment.name} is missing; make it with: conformance env sync {backend}"
            )
        self.scratch = tempfile.TemporaryDirectory(prefix="conformance-tests-")
        self.log = Path(self.scratch.name) / "log"
        package = Path(conformance.__file__).parent
        command = [environment.python, Path(__file__).with_name("calls.py"), package, ROOT]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**backend_named(backend).worker_environment(), "TMPDIR": self.scratch.name},
            )

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of `module:function` there.

        Raises:
            BadInput, Refused, Unsupported: as the function did.
            Raised: it raised something else.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        patience = threading.Timer(SECONDS, self.process.kill)
        patience.start()
        try:
            self.process.stdin.write(json.dumps({"function": function, "arguments": arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            patience.cancel()
        if not line:
            pytest.fail(f"{function} ended its process:\n{self.log.read_text()[-3000:]}")
        answer = json.loads(line)
        if "raised" not in answer:
            return answer["result"]
        kind, message = answer["raised"], answer["message"]
        raise _KINDS[kind](message) if kind in _KINDS else Raised(f"{kind}: {message}")

    def close(self) -> None:
        """End the process at once; what it would tidy up goes with its directory."""
        with self.process:
            self.process.kill()
        self.scratch.cleanup()


class RemoteAdapter(Adapter):
    """A `TransformersAdapter` in its own environment, to be asked from here."""

    def __init__(self, remote: Remote) -> None:
        super().__init__({})
        self.remote = remote

    def prepare(self, checkpoint: Path) -> str:
        return str(checkpoint)

    def run(self, model: str, feed: Feed) -> np.ndarray:
        logits = self.remote.call("tests.backends.transformers.probes:run", model, feed.to_dict())
        return np.array(logits, np.float64 if feed.dtype == "float64" else np.float32)
