"""What a default run deals, as a table: ``python -m tests.cases.dealt DIRECTORY``. A process of its own."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from conformance.checkpoints.store import write_checkpoint
from conformance.trials import deal
from tests.cases.chapters import RELEASES, all_cases, feeds_of

EXAMPLES = 2


def content(directory: Path) -> str:
    """Hash of every file, name and bytes."""
    digest = hashlib.sha256()
    for file in sorted(directory.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def table(checkpoints: Path) -> dict[str, list[list[str]]]:
    """Case and release → for every trial its checkpoint's bytes, its claims' labels and its feeds' keys."""
    rows: dict[str, list[list[str]]] = {}
    known: dict[Path, str] = {}
    for case_id, what in all_cases().items():
        for release in RELEASES:
            trials = rows.setdefault(f"{case_id} {release}", [])
            for trial in deal(what, "plamo3", release, {}, EXAMPLES):
                path = write_checkpoint(checkpoints, trial.spec, trial.seed, trial.layout).path
                if path not in known:
                    known[path] = content(path)
                plan = what.plan(trial)
                labels = [claim.label for claim in plan.claims]
                trials.append([path.name, known[path], *labels, *(f.key for f in feeds_of(plan.claims))])
    return rows


if __name__ == "__main__":
    json.dump(table(Path(sys.argv[1])), sys.stdout)
