"""Backends by name. Listing them imports no engine: adapters are dotted paths, imported in workers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import conformance
from conformance.environments import ENVIRONMENTS, Environment
from conformance.errors import BadInput, did_you_mean
from conformance.families import FAMILIES, family_of

__all__ = ["DEFAULT_BACKENDS", "Backend", "backend_named", "known_backends"]

_CLASS = re.compile(r"^(?P<adapter>[A-Za-z_][\w.]*:[A-Za-z_]\w*)(?:@(?P<python>.+))?$")


@dataclass(frozen=True)
class Backend:
    """How to start one implementation's worker.

    Attributes:
        name: as on the command line.
        title: one line for people.
        environment: the environment that it runs in; None for the interpreter that runs us.
        adapter: `module:Class`, or None for a worker command.
        command: argv of a worker that speaks the protocol, where there is no adapter.
        python: an interpreter of the user's, instead of an environment.
        options: handed to the adapter.
        family: the family that it exists for, or None for any.
        release_code: the release whose released code it can run.
        releases: the releases that it claims, where that is known without asking it.
    """

    name: str
    title: str
    environment: str | None = None
    adapter: str | None = None
    command: tuple[str, ...] = ()
    python: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    family: str | None = None
    release_code: str | None = None
    releases: tuple[str, ...] = ()

    def argv(self) -> list[str]:
        """The worker's command line.

        Raises:
            BadInput: the environment has not been made yet.
        """
        if self.adapter is None:
            return list(self.command)
        package = Path(conformance.__file__).parent
        bootstrap = package / "workers" / "bootstrap.py"
        return [
            self.interpreter(),
            str(bootstrap),
            str(package),
            self.adapter,
            json.dumps(dict(self.options)),
        ]

    def interpreter(self) -> str:
        """The Python that runs the adapter."""
        if self.python is not None:
            return self.python
        if self.environment is None:
            return sys.executable
        environment = ENVIRONMENTS[self.environment]
        if not environment.is_ready():
            hint = f"make it with: conformance env sync {self.name}"
            raise BadInput(f"environment {environment.name} is missing; {hint}")
        return str(environment.python)

    def unavailable(self) -> str | None:
        """Why it cannot be started now, or None."""
        if self.environment is None or self.python is not None:
            return None
        environment: Environment = ENVIRONMENTS[self.environment]
        return None if environment.is_ready() else f"no environment: conformance env sync {self.name}"

    def worker_environment(self, threads: int = 1) -> dict[str, str]:
        """Environment variables of the worker: threads pinned, the host's Python settings left out."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "COV_"))}
        counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        return {**kept, **dict.fromkeys(counts, str(threads)), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}


_GENERIC = (
    Backend(
        name="reference",
        title="the reference implementation",
        adapter="conformance.backends.reference.adapter:ReferenceAdapter",
    ),
    Backend(
        name="vllm",
        title="vLLM's own model code",
        environment="vllm",
        adapter="conformance.backends.vllm.adapter:VllmAdapter",
    ),
    Backend(
        name="mlx",
        title="mlx-lm's own model code",
        environment="mlx",
        adapter="conformance.backends.mlx.adapter:MlxAdapter",
    ),
    Backend(
        name="llama-cpp",
        title="llama.cpp, local layers cached in a window",
        environment="llama-cpp",
        adapter="conformance.backends.llama_cpp.adapter:LlamaCppAdapter",
    ),
    Backend(
        name="llama-cpp-swa-full",
        title="llama.cpp, local layers cached whole",
        environment="llama-cpp",
        adapter="conformance.backends.llama_cpp.adapter:LlamaCppAdapter",
        options={"swa_full": True},
    ),
)

DEFAULT_BACKENDS = ("reference", "plamo3-2604", "plamo3-4k", "vllm")


def known_backends() -> dict[str, Backend]:
    """Every backend that the project ships, by name, in report order."""
    generic = {backend.name: _claiming(backend) for backend in _GENERIC}
    of_families = {
        own.name: Backend(
            name=own.name,
            title=own.title,
            environment=own.environment,
            adapter=own.adapter,
            options={**own.options, "releases": list(own.releases)},
            family=name,
            release_code=own.release_code,
            releases=own.releases,
        )
        for name in FAMILIES
        for own in family_of(name).backends
    }
    return {"reference": generic.pop("reference"), **of_families, **generic}


def _claiming(backend: Backend) -> Backend:
    """A generic backend with the releases that its engine claims, as families say; the reference has all."""
    claimed: list[str] = []
    for family in map(family_of, FAMILIES):
        every = tuple(release.name for release in family.releases)
        claimed += every if backend.name == "reference" else family.claims.get(backend.environment or "", ())
    return replace(backend, releases=tuple(claimed), options={**backend.options, "releases": claimed})


def backend_named(text: str) -> Backend:
    """The backend that a user means: a known name, `module:Class[@PYTHON]`, or a worker's command.

    Raises:
        BadInput: none of the three; the nearest known name is offered.
    """
    known = known_backends()
    if text in known:
        return known[text]
    match = _CLASS.match(text)
    if match is not None:
        python = match["python"]
        if python is not None and shutil.which(python) is None:
            raise BadInput.value("interpreter", python, "an executable Python", f"--backend {text}")
        return Backend(
            name=match["adapter"],
            title=f"class {match['adapter']}",
            adapter=match["adapter"],
            python=python,
            options={"paths": [os.getcwd()]},
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput.value("backend", text, f"a command with balanced quotes: {error}") from None
    if words and shutil.which(words[0]) is not None:
        return Backend(name=text, title=f"worker command {text}", command=tuple(words))
    choice = f"one of {', '.join(known)}, module:Class, or a worker's command"
    raise BadInput(f"backend = {text!r}, but should be {choice}{did_you_mean(text, known)}")
