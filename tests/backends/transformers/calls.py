"""Functions called inside an engine's environment: ``python calls.py PACKAGE ROOT``, one JSON line each way.

Run as a file by the engine's interpreter, which has neither this package nor pytest. stdout carries
answers and nothing else.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Answer calls until the end of input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    package, root = sys.argv[1:3]
    _import_package(Path(package))
    sys.path[0] = root  # in the place of this file's directory, whose modules are not meant to be seen
    for line in sys.stdin:
        request = json.loads(line)
        module, _, name = request["function"].partition(":")
        try:
            answer = {"result": getattr(import_module(module), name)(*request["arguments"])}
        except Exception as error:  # the border: it is raised again in the test's process
            answer = {"raised": type(error).__name__, "message": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _import_package(directory: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "conformance", directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["conformance"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["conformance"])


if __name__ == "__main__":
    main()
