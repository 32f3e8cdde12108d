"""A plugin with one fixture: both releases' engines, each started when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.backends.transformers.remote import Remote

BACKENDS = {"2604": "plamo3-2604", "4k": "plamo3-4k"}


@pytest.fixture(scope="session")
def engine() -> Iterator[Callable[[str], Remote]]:
    """Release → the process that runs its backend's environment."""
    running: dict[str, Remote] = {}
    with ExitStack() as leaving:

        def engine(release: str) -> Remote:
            if release not in running:
                running[release] = Remote(BACKENDS[release])
                leaving.callback(running[release].close)
            return running[release]

        yield engine
