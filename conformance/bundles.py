"""Bundles: one failing claim as a directory that replays it anywhere, without hypothesis.

A bundle holds what is needed to make the checkpoint again (spec, seed, layout), the claim with its
feeds, what was measured, and what ran; the logits lie beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import conformance
from conformance import claims
from conformance.checkpoints.layout import Layout
from conformance.checkpoints.store import Checkpoint, open_checkpoint, write_checkpoint
from conformance.claims import Claim, Outcome, Plan, Span
from conformance.compare.verdict import Verdict
from conformance.errors import BadInput
from conformance.families import family_of
from conformance.families.base import Spec
from conformance.feeds import Feed, parse_feed
from conformance.judging import judge_plan
from conformance.predictions import leaves
from conformance.report.record import verdict_data
from conformance.runs import Session

__all__ = [
    "Bundle",
    "claim_from_dict",
    "claim_to_dict",
    "read_bundle",
    "replay",
    "replay_predicted",
    "same_model",
    "source_hash",
    "write_bundle",
]

VERSION = 2
_KINDS: Mapping[str, type[Claim]] = {
    kind.__name__: kind
    for kind in (
        claims.Agree,
        claims.Differ,
        claims.Matches,
        claims.MatchesOrRefuses,
        claims.SameTopTokens,
        claims.Still,
        claims.WindowSpan,
    )
}


@dataclass(frozen=True)
class Bundle:
    """A stored claim.

    Attributes:
        case: id of the case that made it.
        backend: name of the backend that it failed on.
        spec: the model's configuration.
        seed: of its weights; None for a checkpoint that a user brought.
        layout: how the checkpoint is stored.
        checkpoint: its identity, or the directory that a user brought.
        claim: what failed.
        found: verdict and text, as plain data.
        faults: of the bank, that the backend was known to have when the claim was judged.
        provenance: versions, code and harness, as plain data.
    """

    case: str
    backend: str
    spec: Spec
    seed: int | None
    layout: Layout
    checkpoint: str
    claim: Claim
    found: Mapping[str, Any]
    provenance: Mapping[str, Any]
    faults: tuple[str, ...]


def write_bundle(
    directory: Path,
    *,
    case: str,
    backend: str,
    checkpoint: Checkpoint,
    claim: Claim,
    outcome: Outcome,
    session: Session,
    provenance: Mapping[str, Any],
) -> Path:
    """Write a bundle, replacing one of the same name; the runs come from the session, which has them."""
    brought = checkpoint.seed is None
    content = {
        "version": VERSION,
        "case": case,
        "backend": backend,
        "family": checkpoint.spec.family,
        "release": checkpoint.spec.release,
        "spec": checkpoint.spec.to_config(),
        "seed": checkpoint.seed,
        "layout": asdict(checkpoint.layout),
        "checkpoint": str(checkpoint.path.resolve()) if brought else checkpoint.identity,
        "claim": claim_to_dict(claim),
        "found": {"text": outcome.text, **verdict_data(outcome.verdict)},
        "faults": [] if outcome.predicted is None else list(outcome.predicted.faults),
        "provenance": {
            **provenance,
            "harness": metadata.version("plamo-conformance"),
            "source": source_hash(),
        },
    }
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=directory.parent))
    try:
        (draft / "bundle.json").write_text(json.dumps(content, indent=1) + "\n")
        save_file(_logits(session, backend, checkpoint, claim), draft / "logits.safetensors")
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return directory


def read_bundle(directory: Path) -> Bundle:
    """Read a bundle back.

    Raises:
        BadInput: it is not a bundle, or not one of this version.
    """
    file = directory / "bundle.json"
    if not file.is_file():
        raise BadInput(f"bundle.json is missing, but a bundle needs it [{directory}]")
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise BadInput(f"bundle.json is not JSON: {error} [{file}]") from None
    if not isinstance(content, dict):
        raise BadInput(f"bundle.json = {type(content).__name__}, but should be an object [{file}]")
    if content.get("version") != VERSION:
        raise BadInput.value("version", content.get("version"), str(VERSION), str(file))
    try:
        return _bundle(content, file)
    except KeyError as error:
        raise BadInput(f"{error.args[0]} is missing, but a bundle needs it [{file}]") from None


def _bundle(content: Mapping[str, Any], file: Path) -> Bundle:
    known = sorted(each.name for each in fields(Layout))
    for key in content["layout"]:
        if key not in known:
            raise BadInput(f"{key} is not a key of a layout: {', '.join(known)} [{file}]")
    return Bundle(
        case=content["case"],
        backend=content["backend"],
        spec=family_of(content["family"]).spec_from_config(content["spec"], str(file)),
        seed=content["seed"],
        layout=Layout(**content["layout"]),
        checkpoint=content["checkpoint"],
        claim=claim_from_dict(content["claim"]),
        found=content["found"],
        provenance=content["provenance"],
        faults=tuple(content["faults"]),
    )


def same_model(bundle: Bundle, checkpoints: Path) -> bool:
    """Is the checkpoint that is made now the one that the bundle was recorded with?"""
    if bundle.seed is None:
        return True
    made = write_checkpoint(checkpoints, bundle.spec, bundle.seed, bundle.layout)
    return made.identity == bundle.checkpoint


def replay(bundle: Bundle, session: Session, backend: str, checkpoints: Path) -> Outcome:
    """Judge a bundle's claim again, on its own backend or another.

    Raises:
        BadInput: the checkpoint cannot be made again: a directory that a user brought is gone.
    """
    return judge_plan(session, backend, _checkpoint(bundle, checkpoints), Plan((bundle.claim,), ()))[0]


def replay_predicted(bundle: Bundle, session: Session, backend: str, checkpoints: Path) -> Verdict | None:
    """What is left of the claim's runs against the reference with the bundle's faults, if it has any."""
    if not bundle.faults:
        return None
    return leaves(session, backend, _checkpoint(bundle, checkpoints), bundle.claim, bundle.faults)


def _checkpoint(bundle: Bundle, checkpoints: Path) -> Checkpoint:
    if bundle.seed is None:
        return open_checkpoint(Path(bundle.checkpoint))
    return write_checkpoint(checkpoints, bundle.spec, bundle.seed, bundle.layout)


def claim_to_dict(claim: Claim) -> dict[str, Any]:
    """A claim as JSON: its kind, and its fields."""
    return {"kind": type(claim).__name__} | {f.name: _plain(getattr(claim, f.name)) for f in fields(claim)}


def claim_from_dict(data: Mapping[str, Any]) -> Claim:
    """The claim that `claim_to_dict` wrote.

    Raises:
        BadInput: there is no such kind of claim.
    """
    if data.get("kind") not in _KINDS:
        raise BadInput.value("claim kind", data.get("kind"), f"one of {', '.join(_KINDS)}")
    kind = _KINDS[data["kind"]]
    return kind(**{f.name: _typed(data[f.name]) for f in fields(kind)})


@cache
def source_hash() -> str:
    """SHA-256 over the package's Python files: which harness judged."""
    digest = hashlib.sha256()
    package = Path(conformance.__file__).parent
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    match value:
        case Feed():
            return {"feed": value.to_dict()}
        case Span():
            return {"span": [value.row, value.start, value.stop]}
        case tuple():
            return [_plain(member) for member in value]
        case float() if np.isinf(value):
            return {"float": "inf"}
    return value


def _typed(value: Any) -> Any:
    match value:
        case {"feed": feed}:
            return parse_feed(feed)
        case {"span": [row, start, stop]}:
            return Span(row, start, stop)
        case {"float": text}:
            return float(text)
        case list():
            return tuple(_typed(member) for member in value)
    return value


def _logits(session: Session, backend: str, checkpoint: Checkpoint, claim: Claim) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    for index, feed in enumerate(claim.feeds):
        run = session.run(backend, checkpoint, feed).result()
        if run.logits is not None:
            tensors[f"backend.{index}"] = np.ascontiguousarray(run.logits)
    for index, feed in enumerate(claim.truths):
        truth = session.truth(checkpoint, feed).result()
        tensors[f"reference.{index}"] = np.ascontiguousarray(truth.logits)
        tensors[f"noise.{index}"] = np.ascontiguousarray(truth.noise)
    return tensors
