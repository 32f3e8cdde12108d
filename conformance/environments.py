"""Environments: one venv per engine, made from pinned requirements, named by them, shared by checkouts."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["ENVIRONMENTS", "Environment", "EnvironmentFailed", "cache_directory"]

_BACKENDS = Path(__file__).parent / "backends"
_READY = "conformance-ready.json"


class EnvironmentFailed(Exception):
    """pip could not make an environment; the message is its last error line."""


def cache_directory() -> Path:
    """Where environments and checkpoints are kept; `CONFORMANCE_CACHE` overrides the user's cache."""
    named = os.environ.get("CONFORMANCE_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("plamo-conformance"))


@dataclass(frozen=True)
class Environment:
    """One engine's environment.

    Attributes:
        name: for people.
        requirements: a file that pins every package.
        resolve: let pip check the pins against what packages ask for. Off where a wheel asks for
            packages that do not fit and that its text path does not need.
    """

    name: str
    requirements: Path
    resolve: bool = True

    @property
    def identity(self) -> str:
        """Hash of what decides the content: requirements, Python, platform."""
        digest = hashlib.sha256(self.requirements.read_bytes())
        digest.update(f"{platform.python_version()} {sys.platform} {platform.machine()}".encode())
        return digest.hexdigest()[:12]

    @property
    def path(self) -> Path:
        """The venv's directory; it may not exist yet."""
        return cache_directory() / "environments" / f"{self.name}-{self.identity}"

    @property
    def python(self) -> Path:
        """The venv's interpreter."""
        return self.path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def is_ready(self) -> bool:
        """Was it made to the end?"""
        return (self.path / _READY).is_file()

    def size(self) -> int:
        """Bytes on disk; 0 where it is missing."""
        return sum(
            entry.stat().st_size
            for entry in self.path.rglob("*")
            if entry.is_file() and not entry.is_symlink()
        )

    def sync(self, say: Callable[[str], None]) -> bool:
        """Make it if it is missing; True when it had to be made.

        A lock keeps two processes from making it twice; an unfinished one is made anew.

        Raises:
            EnvironmentFailed: pip failed.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock"):
            if self.is_ready():
                return False
            shutil.rmtree(self.path, ignore_errors=True)
            started = time.monotonic()
            say(f"{self.name}: installing {self.requirements.name}")
            venv.create(self.path, with_pip=True)
            self._pip("install", *([] if self.resolve else ["--no-deps"]), "-r", str(self.requirements))
            seconds = time.monotonic() - started
            (self.path / _READY).write_text(
                json.dumps({"requirements": self.requirements.name, "seconds": seconds})
            )
            say(f"{self.name}: ready after {seconds:.0f} s")
        return True

    def _pip(self, *arguments: str) -> None:
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            raise EnvironmentFailed(f"environment {self.name}: {errors[-1]}")


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("transformers-5", _BACKENDS / "transformers" / "requirements-5.txt"),
        Environment("transformers-4", _BACKENDS / "transformers" / "requirements-4.txt"),
        Environment("vllm", _BACKENDS / "vllm" / "requirements.txt", resolve=False),
    )
}
