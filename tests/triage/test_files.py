"""Files: logits that somebody else made; what does not go together is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.errors import BadInput
from conformance.feeds import Feed, Forward
from conformance.triage.files import file_readings
from conformance.triage.probes import Setting
from conformance.triage.readings import Reading
from conformance.trials import models

FEED = Feed(tokens=((3, 1, 4, 1, 5, 9, 2, 6),), steps=(Forward(8),))
Read = Callable[..., tuple[Setting, list[Reading]]]


@pytest.fixture
def model(tmp_path: Path) -> Checkpoint:
    ((spec, seed),) = models("plamo3", "4k", {}, 1)
    return write_checkpoint(tmp_path / "checkpoints", spec, seed)


@pytest.fixture
def right(model: Checkpoint) -> np.ndarray:
    """The reference's logits of `FEED`."""
    adapter = ReferenceAdapter({})
    return adapter.run(adapter.prepare(model.path), FEED)


@pytest.fixture
def read(tmp_path: Path, model: Checkpoint, right: np.ndarray) -> Read:
    """Reads the right files, but for what is given; `None` leaves an option out."""
    np.save(tmp_path / "logits.npy", right)
    (tmp_path / "feed.json").write_text(json.dumps(FEED.to_dict()))

    def run(**changes: Any) -> tuple[Setting, list[Reading]]:
        given: dict[str, Any] = {
            "logits": [tmp_path / "logits.npy"],
            "feeds": [tmp_path / "feed.json"],
            "against": [],
            "checkpoint": model.path,
            "spec": None,
            "seed": 0,
            "checkpoints": tmp_path / "checkpoints",
        }
        return file_readings(**(given | changes))

    return run


def test_logits_and_their_feed(read: Read, model: Checkpoint) -> None:
    setting, (reading,) = read()
    assert (setting.family, setting.release) == ("plamo3", "4k")
    assert reading.probe.feed == FEED
    assert (reading.probe.name, reading.probe.phase) == ("logits.npy", "prefill")
    assert reading.conforms


def test_one_row_safetensors_and_a_list_of_tokens(read: Read, right: np.ndarray, tmp_path: Path) -> None:
    save_file({"logits": np.ascontiguousarray(right[0])}, tmp_path / "row.safetensors")
    (tmp_path / "tokens.json").write_text(json.dumps(list(FEED.tokens[0])))
    _, (reading,) = read(logits=[tmp_path / "row.safetensors"], feeds=[tmp_path / "tokens.json"])
    assert reading.probe.feed == FEED
    assert reading.conforms


def test_a_generated_model_by_spec_and_seed(read: Read, model: Checkpoint) -> None:
    config = model.path / "config.json"
    _, (reading,) = read(checkpoint=None, spec=config, seed=model.seed)
    assert reading.conforms
    _, (reading,) = read(checkpoint=None, spec=config, seed=model.seed + 1)  # type: ignore[operator]
    assert not reading.conforms


def test_the_plainest_feed_comes_first(read: Read, tmp_path: Path) -> None:
    (tmp_path / "decode.json").write_text(json.dumps(FEED.token_by_token(2).to_dict()))
    logits = [tmp_path / "logits.npy"] * 2
    _, readings = read(logits=logits, feeds=[tmp_path / "decode.json", tmp_path / "feed.json"])
    assert [reading.probe.phase for reading in readings] == ["prefill", "decode"]


def test_the_releases_own_logits_are_checked(read: Read, tmp_path: Path, right: np.ndarray) -> None:
    read(against=[tmp_path / "logits.npy"])
    np.save(tmp_path / "other.npy", right + np.float32(1))
    with pytest.raises(BadInput) as caught:
        read(against=[tmp_path / "other.npy"])
    message = str(caught.value)
    assert message.startswith("--against = 'logits that are ")
    assert message.endswith(
        f"times the noise off', but should be those of release 4k for this model and feed "
        f"[{tmp_path}/other.npy]"
    )


def test_counts_must_agree(read: Read, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(feeds=[])
    assert str(caught.value) == "--feed = 0 files, but should be 1, one for each --logits"
    with pytest.raises(BadInput) as caught:
        read(against=[tmp_path / "logits.npy"] * 2)
    assert str(caught.value) == "--against = 2 files, but should be 1, one for each --logits"


def test_there_is_one_model(read: Read, model: Checkpoint) -> None:
    for changes in ({"checkpoint": None}, {"spec": model.path / "config.json"}):
        with pytest.raises(BadInput) as caught:
            read(**changes)
        assert (
            str(caught.value) == "--logits needs either --checkpoint DIR or --spec config.json, but not both"
        )


BAD_LOGITS = {
    "a missing file": (None, "there is no such file [{f}]"),
    "another shape": (
        np.zeros((1, 8, 3), np.float32),
        "logits = 'shape [1, 8, 3]', but should be [1, 8, {v}], as the feed and the model say [{f}]",
    ),
    "another dtype": (
        np.zeros((1, 8, 1), np.int64),
        "logits = 'dtype int64', but should be float32 or float64 [{f}]",
    ),
}


@pytest.mark.parametrize("name", BAD_LOGITS)
def test_unusable_logits(name: str, read: Read, model: Checkpoint, tmp_path: Path) -> None:
    values, message = BAD_LOGITS[name]
    file = tmp_path / "bad.npy"
    if values is not None:
        if name == "another dtype":
            values = np.zeros((1, 8, model.spec.vocab_size), np.int64)
        np.save(file, values)
    with pytest.raises(BadInput) as caught:
        read(logits=[file])
    assert str(caught.value) == message.format(f=file, v=model.spec.vocab_size)


def test_files_that_hold_no_logits(read: Read, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save_file({"weights": np.zeros(3, np.float32)}, other)
    should = "but should be .npy, or .safetensors with a tensor called logits"
    with pytest.raises(BadInput) as caught:
        read(logits=[other])
    assert str(caught.value) == f"no tensor called logits, {should} [{other}]"
    other.write_bytes(b"nothing")
    with pytest.raises(BadInput) as caught:
        read(logits=[other])
    assert str(caught.value).startswith("no readable logits: ")
    assert str(caught.value).endswith(f"{should} [{other}]")


BAD_FEEDS = {
    "no JSON": (
        "{",
        "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1) [{f}]",
    ),
    "a text": ('"x"', "feed = 'str', but should be an object, or a list of token ids [{f}]"),
    "no steps": ('{"tokens": [[1]]}', "steps is missing, but a feed needs it [{f}]"),
    "unknown tokens": (
        "[1, 99999]",
        "tokens = 'up to 99999', but should be below the vocabulary's {v} [{f}]",
    ),
}


@pytest.mark.parametrize("name", BAD_FEEDS)
def test_unusable_feeds(name: str, read: Read, model: Checkpoint, tmp_path: Path) -> None:
    text, message = BAD_FEEDS[name]
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        read(feeds=[file])
    assert str(caught.value) == message.format(f=file, v=model.spec.vocab_size)


def test_a_configuration_of_no_family(read: Read, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama"}')
    with pytest.raises(BadInput) as caught:
        read(checkpoint=None, spec=file)
    assert str(caught.value).startswith("model_type = 'llama', but should be plamo3")
    assert str(caught.value).endswith(f"[{file}]")
