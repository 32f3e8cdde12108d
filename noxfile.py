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


# The backends of a run that names none, and the family of one that names none.
FAMILY = "plamo3"
DEFAULT = {
    "plamo3": ("reference", "plamo3-2604", "plamo3-4k", "vllm"),
    "gemma4": ("reference", "gemma4-eager", "gemma4-sdpa", "vllm"),
}


def _install(session: nox.Session, *requirements: str) -> None:
    pinned = [argument for file in (HOST, *requirements) for argument in ("-r", file)]
    session.install(*pinned)
    session.install("--no-deps", "--editable", ".")


@nox.session
def conformance(session: nox.Session) -> None:
    """All cases of a family on its default backends; arguments after -- go to pytest."""
    _install(session)
    families = _given("--family", session.posargs) or [FAMILY]
    backends = _given("--backend", session.posargs)
    backends = backends or list(dict.fromkeys(name for family in families for name in DEFAULT[family]))
    session.run("conformance", "env", "sync", *backends)
    chosen = [f"--family={name}" for name in families] + [f"--backend={name}" for name in backends]
    rest = _without(("--family", "--backend"), session.posargs)
    name = "-".join(("conformance", *(family for family in families if family != FAMILY)))
    reports = ("--json", f"build/{name}.json", "--html", f"build/{name}.html")
    junit = ("--junitxml", f"build/junit-{name}.xml")
    session.run("pytest", "cases", "-rfE", *junit, *chosen, *reports, *rest, env=THREADS)


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
    rest = _without(("--family",), session.posargs)
    for family in _given("--family", session.posargs) or DEFAULT:
        session.run("conformance", "mutants", f"--family={family}", "--docs", "docs", *rest, env=THREADS)
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


@nox.session
def calibrate(session: nox.Session) -> None:
    """Measure what ROUNDING and DRIFT rest on, and write docs/tolerances.md; after --, e.g. --models 5."""
    _install(session, "conformance/calibration/requirements.txt")
    session.run("conformance", "env", "sync", *DEFAULT[FAMILY])
    session.run("python", "-m", "conformance.calibration", "--plots", *session.posargs, env=THREADS)


def _given(option: str, arguments: list[str]) -> list[str]:
    """The values of an option that may be repeated."""
    named = [after for before, after in pairwise(arguments) if before == option]
    return named + [a.removeprefix(f"{option}=") for a in arguments if a.startswith(f"{option}=")]


def _without(options: tuple[str, ...], arguments: list[str]) -> list[str]:
    """The arguments without some options and their values."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument not in options and argument.partition("=")[0] not in options:
            kept.append(argument)
        skip = argument in options
    return kept
