"""Start a worker inside an engine's environment: ``python bootstrap.py PACKAGE MODULE:CLASS OPTIONS``.

Run as a file, not as a module: the engine's interpreter does not have this package installed, and must
not see the packages beside it. So only the package itself is made importable, by its directory.
File descriptor 1 is moved out of reach before anything else is imported: stdout belongs to the
protocol, and what an engine prints, from Python or from C, goes to the log with stderr.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path


def _import_package(directory: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "conformance", directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["conformance"] = package
    spec.loader.exec_module(package)


def main() -> None:
    """Take over stdout, then serve the adapter."""
    protocol = os.dup(1)
    os.dup2(2, 1)
    sys.path.pop(0)  # the directory of this file
    package, adapter, options = sys.argv[1:4]
    _import_package(Path(package))
    from conformance.workers.serve import serve

    settings = json.loads(options)
    sys.path[:0] = settings.pop("paths", [])
    with os.fdopen(0, "r", closefd=False) as requests, os.fdopen(protocol, "w") as responses:
        serve(adapter, settings, requests, responses)


if __name__ == "__main__":
    main()
