"""Environments: one venv per engine, made from pinned requirements, named by them, shared by checkouts."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["ENVIRONMENTS", "Environment", "EnvironmentFailed", "cache_directory"]

_BACKENDS = Path(__file__).parent / "backends"
_READY = "conformance-ready.json"
_REPORT_SECONDS = 60.0


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
        build: environment variables of pip, where it compiles a package; they decide the content too.
        hint: what is said before installing, where that takes minutes or needs something of the machine.
    """

    name: str
    requirements: Path
    resolve: bool = True
    build: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""

    @property
    def identity(self) -> str:
        """Hash of what decides the content: requirements, how they are built, Python, platform."""
        digest = hashlib.sha256(self.requirements.read_bytes())
        digest.update(f"{platform.python_version()} {sys.platform} {platform.machine()}".encode())
        if self.build:
            digest.update(json.dumps(dict(self.build), sort_keys=True).encode())
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
            say(f"{self.name}: installing {self.requirements.name}{f'; {self.hint}' if self.hint else ''}")
            venv.create(self.path, with_pip=True)
            with _reporting(say, self.name):
                self._pip("install", *([] if self.resolve else ["--no-deps"]), "-r", str(self.requirements))
            seconds = time.monotonic() - started
            (self.path / _READY).write_text(
                json.dumps({"requirements": self.requirements.name, "seconds": seconds})
            )
            say(f"{self.name}: ready after {seconds:.0f} s")
        return True

    def _pip(self, *arguments: str) -> None:
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            env={**os.environ, **self.build},
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            raise EnvironmentFailed(f"environment {self.name}: {errors[-1]}")


@contextmanager
def _reporting(say: Callable[[str], None], name: str) -> Iterator[None]:
    """Say every minute that it goes on: pip is silent while it compiles."""
    finished = threading.Event()
    started = time.monotonic()

    def report() -> None:
        while not finished.wait(_REPORT_SECONDS):
            say(f"{name}: still installing after {time.monotonic() - started:.0f} s")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        finished.set()
        reporter.join()


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("transformers-5", _BACKENDS / "transformers" / "requirements-5.txt"),
        Environment("transformers-4", _BACKENDS / "transformers" / "requirements-4.txt"),
        Environment("vllm", _BACKENDS / "vllm" / "requirements.txt", resolve=False),
        Environment("mlx", _BACKENDS / "mlx" / "requirements.txt"),
        Environment(
            "llama-cpp",
            _BACKENDS / "llama_cpp" / "requirements.txt",
            # No wheel is published: built for any CPU with AVX2 instead of this very one, so that a cache
            # can be shared, on two cores, without what reads images.
            build={
                "CMAKE_ARGS": "-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF",
                "CMAKE_BUILD_PARALLEL_LEVEL": "2",
            },
            hint="llama.cpp is compiled, which takes minutes and needs a C++ compiler",
        ),
    )
}
