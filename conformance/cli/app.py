"""The command line: one typer application; each command's work lives in a module of its own."""

from __future__ import annotations

import sys

import typer

from conformance.cli.check import check
from conformance.cli.env import environments
from conformance.cli.golden import golden
from conformance.cli.listing import listing
from conformance.cli.mutants import mutants
from conformance.cli.naming import naming
from conformance.cli.replay import replay_bundle
from conformance.cli.triage import triage
from conformance.errors import BadInput

__all__ = ["app", "main"]

app = typer.Typer(
    name="conformance",
    help="Do two implementations of the same language model compute the same thing, and if not, where?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("list")(listing)
app.command("check")(check)
app.command("triage")(triage)
app.command("mutants")(mutants)
app.command("naming")(naming)
app.command("replay")(replay_bundle)
app.add_typer(environments, name="env")
app.add_typer(golden, name="golden")


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    try:
        app()
    except BadInput as error:
        sys.stderr.write(f"conformance: {error}\n")
        sys.exit(2)
