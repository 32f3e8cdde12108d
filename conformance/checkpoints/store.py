"""Checkpoint directories: written once, named by their content, read with every value checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors

from conformance.checkpoints.container import write_container
from conformance.checkpoints.layout import Layout
from conformance.errors import BadInput
from conformance.families import family_of, family_of_model
from conformance.families.base import Spec

__all__ = ["Checkpoint", "Layout", "open_checkpoint", "write_checkpoint"]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PIECE = 2**20


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory and what is in it.

    Attributes:
        path: the directory.
        spec: its configuration.
        identity: hash of its content.
        seed: the seed of generated weights, or None for a directory that a user brought.
        layout: how it is stored.
    """

    path: Path
    spec: Spec
    identity: str
    seed: int | None = None
    layout: Layout = Layout()


def write_checkpoint(
    root: Path,
    spec: Spec,
    seed: int,
    layout: Layout = Layout(),
    *,
    edited: Mapping[str, np.ndarray] | None = None,
) -> Checkpoint:
    """Generate the checkpoint of (spec, seed, layout) under `root`, or reuse the one that is there.

    The directory appears whole or not at all; its name is a hash of everything that decides its
    bytes, the remote code in it included.

    Args:
        root: directory of checkpoints.
        spec: the configuration.
        seed: names the weights.
        layout: how to store them.
        edited: tensors to store instead of the generated ones, for tests that disturb a parameter.
    """
    family = family_of(spec.family)
    config = spec.to_config(omit_defaults=layout.omit_defaults)
    if family.standin is not None:
        config["auto_map"] = dict(family.auto_map[spec.release])
    config["torch_dtype"] = layout.dtype
    files = [] if family.standin is None else sorted(family.standin.glob("*.py"))
    code = {path.name: path.read_bytes() for path in files}
    weights = _hash_of_weights(spec, seed, layout.recipe)
    content = hashlib.sha256(json.dumps([config, asdict(layout), weights], sort_keys=True).encode())
    for name, text in code.items():
        content.update(name.encode() + b"\0" + text)
    for name, values in sorted((edited or {}).items()):
        content.update(name.encode() + b"\0" + np.ascontiguousarray(values, np.float32).tobytes())
    identity = content.hexdigest()[:16]
    path = root / identity
    if not path.exists():
        tensors = {**family.weights(spec, seed, layout.recipe), **(edited or {})}
        root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=root))
        try:
            (draft / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
            for name, text in code.items():
                (draft / name).write_bytes(text)
            _write_tensors(draft, tensors, layout)
            os.rename(draft, path)
        except OSError:
            # Another process that generates the same content may have come first.
            if not path.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return Checkpoint(path, spec, identity, seed, layout)


def open_checkpoint(path: Path) -> Checkpoint:
    """Check a checkpoint directory that a user brought: config.json, then every tensor's name and shape.

    Raises:
        BadInput: the first thing that is wrong, with the file it is in.
    """
    spec = read_spec(path)
    shapes = _stored_shapes(path)
    expected = family_of(spec.family).parameters(spec)
    for name, shape in expected.items():
        if name not in shapes:
            raise BadInput(f"{name} is missing, but its config.json asks for {list(shape)} [{path}]")
        got, where = shapes[name]
        if got != shape:
            raise BadInput(f"{name}: shape = {list(got)}, but should be {list(shape)} [{where}]")
    for name in shapes:
        if name not in expected:
            raise BadInput(f"{name} is not a parameter of {spec.family} [{shapes[name][1]}]")
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.suffix in (".json", ".safetensors", ".py"):
            digest.update(file.name.encode() + b"\0")
            _add_content(digest, file)
    return Checkpoint(path, spec, digest.hexdigest()[:16])


def read_spec(path: Path) -> Spec:
    """The spec of a checkpoint directory's config.json.

    Raises:
        BadInput: there is none, it is not JSON, or a value is wrong.
    """
    file = path / "config.json"
    if not file.is_file():
        raise BadInput(f"config.json is missing, but a checkpoint directory needs it [{path}]")
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        raise BadInput(f"config.json is not JSON: {error} [{file}]") from None
    if not isinstance(config, dict):
        raise BadInput(f"config.json = {type(config).__name__}, but should be an object [{file}]")
    if "model_type" not in config:
        raise BadInput(f"model_type is missing, but names the family [{file}]")
    return family_of_model(config["model_type"], str(file)).spec_from_config(config, str(file))


@lru_cache(maxsize=1024)
def _hash_of_weights(spec: Spec, seed: int, recipe: str) -> str:
    # Of the values, not of what names them: directories outlive the code that generates weights.
    digest = hashlib.sha256()
    for name, values in family_of(spec.family).weights(spec, seed, recipe).items():
        digest.update(name.encode() + b"\0" + np.ascontiguousarray(values, np.float32).tobytes())
    return digest.hexdigest()


def _write_tensors(directory: Path, tensors: Mapping[str, np.ndarray], layout: Layout) -> None:
    names = list(tensors)
    where: dict[str, str] = {}
    total = 0
    for number in range(layout.shards):
        members = names[number :: layout.shards]
        file = WEIGHTS if layout.shards == 1 else f"model-{number + 1:05d}-of-{layout.shards:05d}.safetensors"
        total += write_container(directory / file, {name: tensors[name] for name in members}, layout.dtype)
        where.update(dict.fromkeys(members, file))
    if layout.shards > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (directory / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def _stored_shapes(path: Path) -> dict[str, tuple[tuple[int, ...], Path]]:
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise BadInput(f"{WEIGHTS} is missing, but a checkpoint directory needs it [{path}]")
    shapes: dict[str, tuple[tuple[int, ...], Path]] = {}
    for file in files:
        for name, shape in _header(file).items():
            if name in shapes:
                raise BadInput(f"{name} is stored twice: in {shapes[name][1].name} and {file.name} [{path}]")
            shapes[name] = (shape, file)
    return shapes


def _add_content(digest: hashlib._Hash, file: Path) -> None:
    # Piece by piece: a shard of real weights may be larger than the memory.
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safetensors.safe_open(str(file), framework="np") as stored:
            return {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise BadInput(f"{file.name} is not a whole safetensors file: {error} [{file}]") from None
