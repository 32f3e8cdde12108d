"""The `conformance` command."""

from conformance.cli.app import main

__all__ = ["main"]
