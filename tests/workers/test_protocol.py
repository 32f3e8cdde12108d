"""docs/protocol.md and protocol.schema.json against each other, and against what goes over the pipe."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.backends.registry import Backend
from conformance.checkpoints.store import Checkpoint
from conformance.feeds import CAPABILITIES, DTYPES, MODES
from conformance.runs import Session
from conformance.workers.serve import PROTOCOL
from tests.conftest import ROOT
from tests.workers.test_serve import EVERY_FEED

Check = Callable[[str, Mapping[str, Any]], None]

SCHEMA = json.loads(resources.files("conformance.workers").joinpath("protocol.schema.json").read_text())
PAGE = (ROOT / "docs" / "protocol.md").read_text()
EXCHANGE = re.compile(r"^(→|←) (\{.*\})$", re.MULTILINE)


def example() -> list[tuple[str, dict[str, Any]]]:
    """The lines of the page's example: arrow and message."""
    return [(arrow, json.loads(text)) for arrow, text in EXCHANGE.findall(PAGE)]


def test_the_example_is_a_whole_exchange_and_valid(conforms_to_protocol: Check) -> None:
    lines = example()
    assert [arrow for arrow, _ in lines] == ["→", "←"] * (len(lines) // 2)
    methods = []
    errors = []
    for (_, request), (_, response) in zip(lines[::2], lines[1::2], strict=True):
        conforms_to_protocol("request", request)
        conforms_to_protocol("response", response)
        assert request["id"] == response["id"] == len(methods) + 1
        methods.append(request["method"])
        if "error" in response:
            errors.append(response["error"]["kind"])
        elif request["method"] == "hello":
            conforms_to_protocol("hello", response["result"])
        elif request["method"] == "run":
            conforms_to_protocol("ran", response["result"])
    assert methods == ["hello", "run", "run", "bye"]
    assert errors == ["unsupported"]


def test_the_example_feed_can_be_read() -> None:
    from conformance.feeds import parse_feed

    feeds = [request["params"]["feed"] for arrow, request in example() if request.get("method") == "run"]
    assert [parse_feed(feed).to_dict() for feed in feeds] == feeds


def _names(schema: object) -> Iterator[str]:
    """Every property and every enumerated word of a schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (str(word) for word in schema.get("enum", ()) if word is not None)
        if isinstance(schema.get("const"), str):
            yield schema["const"]
        for part in schema.values():
            yield from _names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _names(part)


def test_the_page_names_everything_that_the_schema_names() -> None:
    missing = sorted({name for name in _names(SCHEMA["$defs"]) if f"`{name}`" not in PAGE})
    assert missing == []


def test_the_schema_says_what_the_code_says() -> None:
    definitions = SCHEMA["$defs"]
    assert definitions["hello"]["properties"]["protocol"] == {"const": PROTOCOL}
    assert definitions["hello"]["properties"]["capabilities"]["items"]["enum"] == sorted(CAPABILITIES)
    assert definitions["hello"]["properties"]["dtypes"]["items"]["enum"] == list(DTYPES)
    assert definitions["feed"]["properties"]["dtype"]["enum"] == list(DTYPES)
    assert definitions["feed"]["properties"]["mode"]["enum"] == list(MODES)


BROKEN = {
    "a request without an id": ("request", {"method": "bye", "params": {}}),
    "an unknown method": ("request", {"id": 1, "method": "sing", "params": {}}),
    "a run without a feed": (
        "request",
        {"id": 1, "method": "run", "params": {"checkpoint": "c", "logits": "l"}},
    ),
    "a result and an error": (
        "response",
        {"id": 1, "result": {}, "error": {"kind": "failed", "message": ""}},
    ),
    "neither": ("response", {"id": 1}),
    "an unknown step": ("step", {"op": "rewind", "length": 3}),
    "a crop without a length": ("step", {"op": "crop"}),
    "an empty grid": ("grid", []),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_schema_turns_down(name: str, conforms_to_protocol: Check) -> None:
    with pytest.raises(jsonschema.ValidationError):
        conforms_to_protocol(*BROKEN[name])


def test_what_goes_over_the_pipe(
    toy: Callable[..., Backend], checkpoint: Checkpoint, tmp_path: Path, conforms_to_protocol: Check
) -> None:
    sent, answered = tmp_path / "sent", tmp_path / "answered"
    worker = shlex.join(toy("Refuses").argv())
    tapped = f"tee {shlex.quote(str(sent))} | {worker} | tee {shlex.quote(str(answered))}"
    session = Session(tmp_path / "session")
    session.add(Backend(name="tapped", title="", command=("sh", "-c", tapped)))
    runs = {name: session.run("tapped", checkpoint, feed).result() for name, feed in EVERY_FEED.items()}
    session.close()
    assert {name: run.kind for name, run in runs.items() if run.kind} == {"cache operations": "refused"}

    requests = [json.loads(line) for line in sent.read_text().splitlines()]
    responses = [json.loads(line) for line in answered.read_text().splitlines()]
    assert [request["method"] for request in requests] == ["hello", *["run"] * len(EVERY_FEED), "bye"]
    for request, response in zip(requests, responses, strict=True):
        conforms_to_protocol("request", request)
        conforms_to_protocol("response", response)
        assert request["id"] == response["id"]
