"""Sessions: everything is set up from nothing, with pip alone."""

from __future__ import annotations

from itertools import pairwise

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests", "conformance"]

HOST = "conformance/backends/reference/requirements.txt"
# One thread for each process: two engines at work fill two cores.
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _install(session: nox.Session, *requirements: str) -> None:
    pinned = [argument for file in (HOST, *requirements) for argument in ("-r", file)]
    session.install(*pinned)
    session.install("--no-deps", "--editable", ".")


@nox.session
def conformance(session: nox.Session) -> None:
    """All cases on the default backends; arguments after -- go to pytest."""
    _install(session)
    backends = _chosen(session.posargs)
    session.run("conformance", "env", "sync", *backends)
    arguments = [argument for name in backends for argument in ("--backend", name)]
    rest = _without_backends(session.posargs)
    reports = ("--json", "build/conformance.json", "--html", "build/conformance.html")
    junit = ("--junitxml", "build/junit-conformance.xml")
    session.run("pytest", "cases", "-rfE", *junit, *arguments, *reports, *rest, env=THREADS)


@nox.session
def goldens(session: nox.Session) -> None:
    """Record the goldens again, in a temporary place, and compare them with those of the repository."""
    _install(session)
    fresh = f"{session.create_tmp()}/golden"
    session.run("conformance", "golden", "record", "--directory", fresh, env=THREADS)
    session.run("conformance", "golden", "diff", fresh, "--directory", "golden", env=THREADS)
    session.run("conformance", "golden", "verify", "--directory", "golden", env=THREADS)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant every fault, in our code and in engines', and write the pages about what catches them."""
    _install(session)
    session.run("conformance", "env", "sync", "plamo3-2604", "plamo3-4k", "vllm")
    session.run("conformance", "mutants", "--docs", "docs", *session.posargs, env=THREADS)
    session.run("conformance", "mutants", "--engines", "--docs", "docs", env=THREADS)


@nox.session
def tests(session: nox.Session) -> None:
    """The harness's own tests, after ruff and mypy; arguments after -- go to pytest."""
    _install(session, "tests/requirements.txt")
    session.run("conformance", "env", "sync", "plamo3-2604", "plamo3-4k")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy", "-p", "conformance")
    session.run("pytest", "tests", "--junitxml", "build/junit-tests.xml", *session.posargs, env=THREADS)


DEFAULT = ("reference", "plamo3-2604", "plamo3-4k", "vllm")


def _chosen(arguments: list[str]) -> tuple[str, ...]:
    named = [after for before, after in pairwise(arguments) if before == "--backend"]
    named += [a.removeprefix("--backend=") for a in arguments if a.startswith("--backend=")]
    return tuple(named) or DEFAULT


def _without_backends(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument != "--backend" and not argument.startswith("--backend="):
            kept.append(argument)
        skip = argument == "--backend"
    return kept


@nox.session
def calibrate(session: nox.Session) -> None:
    """Measure what ROUNDING and DRIFT rest on, and write docs/tolerances.md; after --, e.g. --models 5."""
    _install(session, "conformance/calibration/requirements.txt")
    session.run("conformance", "env", "sync", *DEFAULT)
    session.run("python", "-m", "conformance.calibration", "--plots", *session.posargs, env=THREADS)
