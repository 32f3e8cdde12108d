"""The golden directory: safetensors files and one manifest, read with every hash checked, written whole.

The manifest is JSON: a version, and for every golden an entry with its pedigree (docs/goldens.md). Each entry
holds the SHA-256 of its file and is sealed by a SHA-256 over the entry itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

import conformance
from conformance.checkpoints.container import write_container
from conformance.checkpoints.layout import Layout
from conformance.errors import BadInput
from conformance.families import family_of
from conformance.families.base import Spec
from conformance.feeds import Feed, parse_feed

__all__ = [
    "Agreement",
    "Golden",
    "check_replaceable",
    "golden_directory",
    "read_goldens",
    "weights_hash",
    "write_goldens",
]

MANIFEST = "manifest.json"
VERSION = 2


@dataclass(frozen=True)
class Agreement:
    """A backend that gave the golden's logits, too: at which grade, and with what.

    Attributes:
        backend: its name.
        code: `its own`, `stand-in`, or the SHA-256 of released code.
        versions: of the engine and what it computes with.
        grade: of its logits against the golden's.
        ratio: largest error / noise.
    """

    backend: str
    code: str
    versions: Mapping[str, str]
    grade: str
    ratio: float


@dataclass(frozen=True)
class Golden:
    """Stored logits and where they come from.

    Attributes:
        id: family, release, model, feed, dtype.
        spec: the model's configuration.
        seed: of its weights.
        layout: recipe of its weights, and how the checkpoint is stored.
        weights: hash of the generated weights.
        feed: what was fed.
        logits: float32 [B, T, V].
        producer: backend, code, versions, numerics and platform that made it.
        command: the command that did.
        agreed: who verified it then.
    """

    id: str
    spec: Spec
    seed: int
    layout: Layout
    weights: str
    feed: Feed
    logits: np.ndarray = field(repr=False, compare=False)
    producer: Mapping[str, Any]
    command: str
    agreed: tuple[Agreement, ...]


def golden_directory() -> Path:
    """Inside the installed package, or beside it in a checkout."""
    package = Path(conformance.__file__).parent
    inside = package / "golden"
    return inside if inside.is_dir() else package.parent / "golden"


def read_goldens(directory: Path) -> dict[str, Golden]:
    """Every golden by id.

    Raises:
        BadInput: the manifest is missing or malformed, or a golden is missing, unused, edited or truncated;
            the message names it.
    """
    manifest = directory / MANIFEST
    if not manifest.is_file():
        raise BadInput(f"{MANIFEST} is missing, but goldens need it [{directory}]")
    try:
        content = json.loads(manifest.read_text())
        version, entries = content["version"], content["goldens"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{MANIFEST} is no manifest of goldens: {error} [{manifest}]") from None
    if version != VERSION:
        raise BadInput.value("version", version, str(VERSION), str(manifest))
    if not isinstance(entries, dict):
        raise BadInput(f"goldens = {type(entries).__name__}, but should be an object [{manifest}]")
    goldens = {name: _read(directory, name, entry) for name, entry in entries.items()}
    for file in sorted(directory.glob("*.safetensors")):
        if file.stem not in goldens:
            raise BadInput(f"golden {file.stem} is unused: no entry of {MANIFEST} names it [{file}]")
    return goldens


def check_replaceable(directory: Path) -> None:
    """May goldens be written there? Writing replaces the whole directory.

    Raises:
        BadInput: it is a file, or holds something that is no golden and would be lost.
    """
    if directory.exists() and not directory.is_dir():
        raise BadInput(f"a file is no directory of goldens [{directory}]")
    goldens = (directory / MANIFEST).is_file()
    for path in sorted(directory.iterdir()) if directory.exists() else ():
        if not (goldens and path.is_file() and (path.name == MANIFEST or path.suffix == ".safetensors")):
            raise BadInput(
                f"{path.name} is no golden, but recording replaces the whole directory [{directory}]"
            )


def write_goldens(directory: Path, goldens: Iterable[Golden]) -> None:
    """Replace the directory's goldens by these: all of them appear at once or none does.

    Raises:
        BadInput: the directory holds something else (`check_replaceable`).
    """
    directory = directory.resolve()
    check_replaceable(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".golden-", dir=directory.parent) as name:
        draft, old = Path(name) / "new", Path(name) / "old"
        draft.mkdir()
        entries = {}
        for golden in sorted(goldens, key=lambda each: each.id):
            file = draft / f"{golden.id}.safetensors"
            write_container(file, {"logits": golden.logits}, "float32")
            entry = _entry(golden, hashlib.sha256(file.read_bytes()).hexdigest())
            entries[golden.id] = {**entry, "seal": _seal(entry)}
        (draft / MANIFEST).write_text(_dump(entries))
        try:
            if directory.exists():
                os.rename(directory, old)
            os.rename(draft, directory)
        finally:
            if old.exists() and not directory.exists():
                os.rename(old, directory)


@lru_cache(maxsize=256)
def weights_hash(spec: Spec, seed: int, layout: Layout) -> str:
    """SHA-256 over names and values of the generated weights."""
    digest = hashlib.sha256()
    for name, values in family_of(spec.family).weights(spec, seed, layout.recipe).items():
        digest.update(name.encode() + b"\0" + np.ascontiguousarray(values, "<f4").tobytes())
    return digest.hexdigest()


def _read(directory: Path, name: str, entry: Any) -> Golden:
    file, manifest = directory / f"{name}.safetensors", directory / MANIFEST
    if not isinstance(entry, dict):
        raise BadInput(f"golden {name} is no entry but {type(entry).__name__} [{manifest}]")
    if not file.is_file():
        raise BadInput(
            f"golden {name} is missing: {MANIFEST} names it, but there is no {file.name} [{directory}]"
        )
    if entry.get("seal") != _seal(entry):
        raise BadInput(f"golden {name} was edited: its entry of {MANIFEST} breaks its seal [{manifest}]")
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry.get("sha256"):
        raise BadInput(f"golden {name} was edited or truncated: its SHA-256 is not the manifest's [{file}]")
    try:
        logits = load_file(file)["logits"]
    except (SafetensorError, KeyError) as error:
        raise BadInput(f"golden {name} holds no logits: {error} [{file}]") from None
    try:
        return _parse(name, entry, logits)
    except (BadInput, KeyError, TypeError, AttributeError) as error:
        words = error if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
        raise BadInput(f"golden {name}: its entry is malformed: {words} [{manifest}]") from None


def _parse(name: str, entry: Mapping[str, Any], logits: np.ndarray) -> Golden:
    return Golden(
        id=name,
        spec=family_of(entry["family"]).spec_from_config(entry["spec"], None),
        seed=entry["seed"],
        layout=Layout(**entry["layout"]),
        weights=entry["weights"],
        feed=parse_feed(entry["feed"]),
        logits=logits,
        producer=entry["producer"],
        command=entry["command"],
        agreed=tuple(Agreement(**agreement) for agreement in entry["agreed"]),
    )


def _seal(entry: Mapping[str, Any]) -> str:
    """SHA-256 over an entry without its seal, whatever the order of its keys."""
    content = {key: value for key, value in entry.items() if key != "seal"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _entry(golden: Golden, sha256: str) -> dict[str, Any]:
    layout = golden.layout
    return {
        "family": golden.spec.family,
        "release": golden.spec.release,
        "spec": golden.spec.to_config(),
        "seed": golden.seed,
        "layout": {"dtype": layout.dtype, "recipe": layout.recipe},
        "weights": golden.weights,
        "feed": golden.feed.to_dict(),
        "sha256": sha256,
        "producer": dict(golden.producer),
        "command": golden.command,
        "agreed": [
            {
                "backend": a.backend,
                "code": a.code,
                "versions": dict(a.versions),
                "grade": a.grade,
                "ratio": round(a.ratio, 3),
            }
            for a in golden.agreed
        ],
    }


def _dump(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with one key of an entry a line, so that a diff of two manifests reads."""
    blocks = []
    for name, entry in entries.items():
        lines = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
        blocks.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
    body = ",\n".join(blocks)
    return f'{{\n "version": {VERSION},\n "goldens": {{\n{body}\n }}\n}}\n'
