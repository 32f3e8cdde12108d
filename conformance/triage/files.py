"""Readings from files: logits that somebody else made, with what was fed and to which model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from conformance.checkpoints.store import Checkpoint, open_checkpoint, write_checkpoint
from conformance.detection import LocalRuns
from conformance.errors import BadInput
from conformance.families import FAMILIES, family_of
from conformance.feeds import CAPABILITIES, DTYPES, Feed, Forward, parse_feed
from conformance.runs import Run
from conformance.triage.probes import CHUNKED, DECODE, PREFILL, Probe, Setting
from conformance.triage.readings import Reading, explained

__all__ = ["file_readings"]


def file_readings(
    logits: Sequence[Path],
    feeds: Sequence[Path],
    against: Sequence[Path],
    checkpoint: Path | None,
    spec: Path | None,
    seed: int,
    checkpoints: Path,
) -> tuple[Setting, list[Reading]]:
    """Readings of stored logits, the plainest feed first.

    Args:
        logits: files of logits [B, T, V], or [T, V] of one row: .npy, or .safetensors with a tensor `logits`.
        feeds: what was fed for each of them: JSON as in docs/protocol.md, or a list of token ids.
        against: for each of them, the logits of the release, which must be those of the reference; or none.
        checkpoint: directory of the model.
        spec: config.json of a generated model instead.
        seed: of its weights.
        checkpoints: where generated checkpoints are kept.

    Raises:
        BadInput: a file is missing or malformed, or does not go with the others.
    """
    if len(feeds) != len(logits):
        raise BadInput(f"--feed = {len(feeds)} files, but should be {len(logits)}, one for each --logits")
    if against and len(against) != len(logits):
        raise BadInput(
            f"--against = {len(against)} files, but should be {len(logits)}, one for each --logits"
        )
    model = _model(checkpoint, spec, seed, checkpoints)
    probes = [
        Probe(f"{path.name}", _phase(feed), model, feed)
        for path, feed in zip(logits, map(_feed, feeds), strict=True)
    ]
    truths = LocalRuns(_reference())
    readings: list[Reading] = []
    for place, (probe, path) in enumerate(zip(probes, logits, strict=True)):
        _check_tokens(probe.feed, model, feeds[place])
        truth = truths.truth(model, probe.feed).result()
        if against:
            theirs = Reading(probe, Run(_logits(against[place], truth.logits.shape)), truth)
            if not explained(theirs.plain):
                off = f"logits that are {theirs.plain.max():.3g} times the noise off"
                want = f"those of release {model.spec.release} for this model and feed"
                raise BadInput.value("--against", off, want, str(against[place]))
        readings.append(Reading(probe, Run(_logits(path, truth.logits.shape)), truth))
    readings.sort(key=lambda reading: (len(reading.probe.feed.steps), reading.probe.feed.width))
    setting = Setting(
        model.spec.family, model.spec.release, {}, frozenset(CAPABILITIES), frozenset(DTYPES), checkpoints
    )
    return setting, readings


def _reference() -> object:
    from importlib import import_module

    return import_module("conformance.backends.reference.adapter").ReferenceAdapter({})


def _model(checkpoint: Path | None, spec: Path | None, seed: int, checkpoints: Path) -> Checkpoint:
    if (checkpoint is None) == (spec is None):
        raise BadInput("--logits needs either --checkpoint DIR or --spec config.json, but not both")
    if checkpoint is not None:
        return open_checkpoint(checkpoint)
    assert spec is not None
    config = _json(spec)
    if not isinstance(config, dict) or config.get("model_type") not in FAMILIES:
        found = config.get("model_type") if isinstance(config, dict) else type(config).__name__
        raise BadInput.value("model_type", found, " or ".join(FAMILIES), str(spec))
    parsed = family_of(config["model_type"]).spec_from_config(config, str(spec))
    return write_checkpoint(checkpoints, parsed, seed)


def _feed(path: Path) -> Feed:
    content = _json(path)
    if isinstance(content, list) and content and all(isinstance(token, int) for token in content):
        return Feed(tokens=(tuple(content),), steps=(Forward(len(content)),))
    if not isinstance(content, dict):
        raise BadInput.value("feed", type(content).__name__, "an object, or a list of token ids", str(path))
    try:
        return parse_feed(content)
    except BadInput as error:
        raise BadInput(f"{error} [{path}]") from None


def _check_tokens(feed: Feed, model: Checkpoint, path: Path) -> None:
    largest = max(max(row) for row in feed.tokens)
    if largest >= model.spec.vocab_size:
        raise BadInput.value(
            "tokens", f"up to {largest}", f"below the vocabulary's {model.spec.vocab_size}", str(path)
        )


def _phase(feed: Feed) -> str:
    if feed.mode != "evaluation":
        return "training"
    later = feed.chunks[1:]
    if not later:
        return PREFILL
    return DECODE if set(later) == {1} else CHUNKED


def _json(path: Path) -> object:
    if not path.is_file():
        raise BadInput(f"there is no such file [{path}]")
    try:
        return json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput(f"not JSON: {error} [{path}]") from None


def _logits(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    if not path.is_file():
        raise BadInput(f"there is no such file [{path}]")
    try:
        found = np.load(path, allow_pickle=False) if path.suffix == ".npy" else load_file(path)["logits"]
    except (ValueError, OSError, SafetensorError, KeyError, TypeError) as error:
        words = "no tensor called logits" if isinstance(error, KeyError) else f"no readable logits: {error}"
        raise BadInput(
            f"{words}, but should be .npy, or .safetensors with a tensor called logits [{path}]"
        ) from None
    if found.ndim == 2:
        found = found[None]
    if found.shape != shape:
        raise BadInput.value(
            "logits", f"shape {list(found.shape)}", f"{list(shape)}, as the feed and the model say", str(path)
        )
    if found.dtype not in (np.float32, np.float64):
        raise BadInput.value("logits", f"dtype {found.dtype}", "float32 or float64", str(path))
    return found
