"""The worker's side in this process: what it answers, as text, and what it writes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.feeds import Crop, Feed, Forward, Reorder, Reset
from conformance.workers.serve import serve
from tests import toys

Check = Callable[[str, Mapping[str, Any]], None]

FEED = Feed(tokens=((3, 1, 4, 1, 5),), steps=(Forward(5),))
EVERY_FEED = {
    "whole": FEED,
    "chunks": FEED.split([2, 1]),
    "bfloat16": replace(FEED, dtype="bfloat16"),
    "float64": replace(FEED, dtype="float64"),
    "training": replace(FEED, mode="training"),
    "training without gradients": replace(FEED, mode="training-nograd"),
    "left padding": replace(
        FEED, tokens=((3, 1, 4), (0, 2, 7)), steps=(Forward(3),), lengths=(3, 2), padding="left"
    ),
    "right padding": replace(
        FEED, tokens=((3, 1, 4), (2, 7, 0)), steps=(Forward(3),), lengths=(3, 2), padding="right"
    ),
    "ragged": replace(FEED, tokens=((3, 1, 4), (2, 7, 0)), steps=(Forward(3),), lengths=(3, 2)),
    "positions": replace(FEED, positions=((4, 5, 6, 7, 8),)),
    "segments": replace(FEED, segments=((0, 0, 1, 1, 1),)),
    "cache operations": replace(
        FEED,
        tokens=((3, 1, 4), (2, 7, 0)),
        steps=(Forward(1), Reorder((1, 1)), Forward(1), Crop(0), Reset(), Forward(1)),
    ),
}


def exchange(adapter: str, *requests: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The answers to some requests, whose ids are their places."""
    lines = [json.dumps({"id": number, **request}) for number, request in enumerate(requests, 1)]
    responses = io.StringIO()
    serve(adapter, options, io.StringIO("\n".join(lines) + "\n"), responses)
    return [json.loads(line) for line in responses.getvalue().splitlines()]


def run(checkpoint: Checkpoint, out: Path, feed: Feed = FEED, **more: Any) -> dict[str, Any]:
    params = {"checkpoint": str(checkpoint.path), "feed": feed.to_dict(), "logits": str(out), **more}
    return {"method": "run", "params": params}


def error_of(adapter: str, request: Mapping[str, Any], **options: Any) -> tuple[str, str]:
    (answer,) = exchange(adapter, request, **options)
    return answer["error"]["kind"], answer["error"]["message"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "logits.safetensors"


def test_hello(conforms_to_protocol: Check) -> None:
    request = {"id": 1, "method": "hello", "params": {"protocol": 1}}
    (answer,) = exchange("tests.toys:Whole", request)
    conforms_to_protocol("request", request)
    conforms_to_protocol("response", answer)
    conforms_to_protocol("hello", answer["result"])
    assert answer == {
        "id": 1,
        "result": {
            "protocol": 1,
            "releases": ["2604"],
            "capabilities": [],
            "dtypes": ["float32"],
            "limits": {"head_dim": {"one_of": [24]}},
            "orders": ["relabel:N", "casts:NAME,NAME"],
            "versions": {"numpy": np.__version__},
            "numerics": {"threads": 1},
        },
    }


@pytest.mark.parametrize("name", EVERY_FEED)
def test_run(name: str, checkpoint: Checkpoint, out: Path, conforms_to_protocol: Check) -> None:
    feed = EVERY_FEED[name]
    request = run(checkpoint, out, feed)
    (answer,) = exchange("tests.toys:Toy", request)
    conforms_to_protocol("request", {"id": 1, **request})
    conforms_to_protocol("response", answer)
    conforms_to_protocol("ran", answer["result"])
    assert answer["result"]["logits"] == str(out)
    assert list(load_file(out)) == ["logits"]
    model = toys.Toy({}).prepare(checkpoint.path)
    np.testing.assert_array_equal(load_file(out)["logits"], toys.Toy({}).run(model, feed))
    assert sorted(file.name for file in out.parent.iterdir()) == ["logits.safetensors"]


def test_run_in_several_orders(checkpoint: Checkpoint, out: Path, conforms_to_protocol: Check) -> None:
    request = run(checkpoint, out, orders=["relabel:0", "relabel:1"])
    conforms_to_protocol("request", {"id": 1, **request})
    exchange("tests.toys:Toy", request)
    assert sorted(load_file(out)) == ["logits.relabel:0", "logits.relabel:1"]


def test_an_engine_is_started_once_before_anything_is_asked() -> None:
    again = {"id": 2, "method": "hello", "params": {}}
    answers = exchange("tests.toys:SlowToStart", {"id": 1, "method": "hello", "params": {}}, again)
    assert [answer["result"]["releases"] for answer in answers] == [["4k"], ["4k"]]


def test_bye_ends_it(conforms_to_protocol: Check) -> None:
    bye = {"method": "bye", "params": {}}
    conforms_to_protocol("request", {"id": 1, **bye})
    answers = exchange("tests.toys:Toy", bye, {"method": "hello", "params": {}})
    assert answers == [{"id": 1, "result": {}}]
    conforms_to_protocol("response", answers[0])


ERRORS = {
    "Raises": ("failed", "RuntimeError: no kernel for head size 24"),
    "CannotLoad": ("failed", "KeyError: 'plamo3'"),
    "Unable": ("unsupported", "no sequences above 8 tokens"),
    "Nothing": ("failed", "TypeError: run returned NoneType, but should return an array"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_goes_wrong_in_an_adapter(
    name: str, checkpoint: Checkpoint, out: Path, conforms_to_protocol: Check
) -> None:
    (answer,) = exchange(f"tests.toys:{name}", run(checkpoint, out))
    conforms_to_protocol("response", answer)
    assert (answer["error"]["kind"], answer["error"]["message"]) == ERRORS[name]
    assert list(out.parent.iterdir()) == []


def test_a_refusal(checkpoint: Checkpoint, out: Path) -> None:
    assert error_of("tests.toys:Refuses", run(checkpoint, out, EVERY_FEED["cache operations"])) == (
        "refused",
        "cannot crop a ring",
    )


def test_a_traceback_comes_along(
    checkpoint: Checkpoint, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = exchange("tests.toys:Raises", run(checkpoint, out))
    assert "Run with DEBUG=1 for more." in answer["error"]["traceback"]
    assert capsys.readouterr().err == answer["error"]["traceback"]


def test_what_was_not_declared_is_not_tried(checkpoint: Checkpoint, out: Path) -> None:
    assert error_of("tests.toys:Whole", run(checkpoint, out, EVERY_FEED["cache operations"])) == (
        "unsupported",
        "lacks batch, crop, decode, reorder, reset",
    )
    assert error_of("tests.toys:Whole", run(checkpoint, out, EVERY_FEED["bfloat16"])) == (
        "unsupported",
        "does not compute in bfloat16",
    )


NOT_LOADED = {
    "no_such_module:Class": "no module 'no_such_module', which --backend no_such_module:Class needs",
    "tests.toys:Giraffe": "module tests.toys has no class 'Giraffe'",
    "tests.toys:NoAdapter": "tests.toys:NoAdapter is not a subclass of conformance.workers.adapter.Adapter",
}


@pytest.mark.parametrize("adapter", NOT_LOADED)
def test_an_adapter_that_cannot_be_loaded(adapter: str) -> None:
    assert error_of(adapter, {"method": "hello", "params": {}}) == ("failed", NOT_LOADED[adapter])


def test_an_unknown_method() -> None:
    assert error_of("tests.toys:Toy", {"method": "sing", "params": {}}) == (
        "failed",
        "method = 'sing', but should be hello, run or bye",
    )


def test_a_feed_that_makes_no_sense(checkpoint: Checkpoint, out: Path) -> None:
    request = run(checkpoint, out)
    request["params"]["feed"]["steps"] = [{"op": "forward", "columns": 4}]
    assert error_of("tests.toys:Toy", request) == (
        "failed",
        "steps = '4 columns', but should be 5, the width of tokens",
    )


def test_the_least_recently_used_checkpoint_is_released(
    checkpoint: Checkpoint, out: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("more")
    a, b, c = checkpoint, *(write_checkpoint(root, checkpoint.spec, seed) for seed in (2, 3))
    toys.Diary.entries.clear()
    exchange("tests.toys:Diary", *(run(which, out) for which in (a, b, a, c, a, b)), keep=2)
    names = {a.path.name: "a", b.path.name: "b", c.path.name: "c"}
    assert [(what, names[which]) for what, which in toys.Diary.entries] == [
        ("prepare", "a"),
        ("prepare", "b"),
        ("release", "b"),
        ("prepare", "c"),
        ("release", "c"),
        ("prepare", "b"),
    ]
