"""`conformance env`: make and list the environments of the backends."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from conformance.backends.registry import DEFAULT_BACKENDS, backend_named, known_backends
from conformance.environments import ENVIRONMENTS, Environment, EnvironmentFailed

__all__ = ["environments"]

environments = typer.Typer(help="The environments that backends run in.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@environments.command("sync")
def sync(
    backends: Annotated[
        list[str] | None, typer.Argument(help="Backends; the default ones if none, or `all`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the environments that are missing, each from its pinned requirements."""
    console = Console(stderr=True, highlight=False)
    made: dict[str, bool] = {}
    for name in _environments(backends or list(DEFAULT_BACKENDS)):
        try:
            made[name] = ENVIRONMENTS[name].sync(console.print)
        except EnvironmentFailed as error:
            console.print(f"conformance: {error}", style="red", markup=False)
            raise typer.Exit(2) from None
    if as_json:
        print(
            json.dumps(
                {name: {"made": new, "path": str(ENVIRONMENTS[name].path)} for name, new in made.items()}
            )
        )
        return
    for name, new in made.items():
        console.print(f"{name}: {'made' if new else 'ready'}")


@environments.command("list")
def list_environments(as_json: Json = False) -> None:
    """Show every environment: state, size, and the backends that use it."""
    users: dict[str, list[str]] = {}
    for backend in known_backends().values():
        if backend.environment is not None:
            users.setdefault(backend.environment, []).append(backend.name)
    if as_json:
        print(
            json.dumps(
                {name: _state(env, users.get(name, [])) for name, env in ENVIRONMENTS.items()}, indent=1
            )
        )
        return
    table = Table()
    for heading in ("environment", "state", "size", "backends"):
        table.add_column(heading)
    for name, env in ENVIRONMENTS.items():
        size = f"{env.size() / 1e9:.1f} GB" if env.is_ready() else ""
        table.add_row(name, "ready" if env.is_ready() else "missing", size, ", ".join(users.get(name, [])))
    Console(highlight=False).print(table)


def _environments(backends: list[str]) -> list[str]:
    names = list(known_backends()) if "all" in backends else backends
    wanted = [backend_named(name).environment for name in names]
    return list(dict.fromkeys(name for name in wanted if name is not None))


def _state(env: Environment, users: list[str]) -> dict[str, object]:
    ready = env.is_ready()
    return {
        "state": "ready" if ready else "missing",
        "path": str(env.path),
        "bytes": env.size() if ready else 0,
        "backends": users,
    }
