"""A worker in plain Python, without this package: ``python scripted.py BEHAVIOUR [STATE]``.

It answers `hello` and then misbehaves as asked. With STATE, a file that does not exist yet, it misbehaves
once and works in every later process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

HELLO = {
    "protocol": 1,
    "releases": ["2604"],
    "capabilities": ["decode"],
    "dtypes": ["float32"],
    "limits": {"head_dim": {"one_of": [32]}},
    "versions": {"engine": "1.2"},
}


def say(answer: Any) -> None:
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)


def complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def hang() -> NoReturn:
    while True:
        time.sleep(60)


def start(behaviour: str) -> None:
    """What goes wrong before the first request is read."""
    match behaviour:
        case "dies at start":
            complain("no licence found")
            os._exit(3)
        case "dies at start without a word":
            os._exit(3)
        case "hangs at start":
            hang()
        case "floods":
            while True:
                print("loading weights " * 8)


def greeting(behaviour: str) -> dict[str, Any]:
    match behaviour:
        case "speaks protocol 2":
            return HELLO | {"protocol": 2}
        case "says no releases":
            return {key: value for key, value in HELLO.items() if key != "releases"}
        case "has an unknown capability":
            return HELLO | {"capabilities": ["telepathy"]}
        case "has an unknown limit":
            return HELLO | {"limits": {"head_dim": {"around": 32}}}
    return HELLO


def answer(behaviour: str, number: int, params: dict[str, Any]) -> Any:
    """What is printed in answer to a run."""
    right = {"id": number, "result": {"logits": params["logits"], "run_seconds": 0.5}}
    failed = {"kind": "failed", "message": "RuntimeError: no kernel for head size 24", "traceback": "…"}
    answers = {
        "prints": "loading shard 1 of 2 …\n" + json.dumps(right),
        "prints half an answer": json.dumps(right)[:20],
        "answers another request": right | {"id": number + 5},
        "answers a list": [number],
        "names an unknown error": {"id": number, "error": {"kind": "tired", "message": "later"}},
        "names no file": {"id": number, "result": {"run_seconds": 0.5}},
        "says it failed": {"id": number, "error": failed},
        "says it cannot": {"id": number, "error": {"kind": "unsupported", "message": "no batches above 8"}},
        "refuses": {"id": number, "error": {"kind": "refused", "message": "cannot crop a ring"}},
    }
    return answers.get(behaviour, right)


def run(behaviour: str, params: dict[str, Any]) -> None:
    """What goes wrong before a run is answered."""
    match behaviour:
        case "dies half-way":
            complain("Segmentation fault in kernel 7")
            os.kill(os.getpid(), signal.SIGSEGV)
        case "leaves half-way":
            os._exit(7)
        case "leaves a child behind":
            subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)", *sys.argv[2:]])
            os._exit(9)
        case "hangs":
            hang()
        case "prints without end":
            while True:
                sys.stdout.write("." * 65536)
        case "closes stdout":
            sys.stdout.close()
            os.close(1)
            hang()
        case "eats memory":
            eaten = b"x" * (300 * 2**20)
            time.sleep(60)
            complain(str(len(eaten)))
        case "says where":
            complain(params["logits"])
        case _:
            write_logits(behaviour, params["logits"])


def write_logits(behaviour: str, file: str) -> None:
    """Most behaviours write nothing: the host does not look for the file, sessions do."""
    match behaviour:
        case "writes and dies":
            write(file, "logits", "F32", 4)
            os._exit(4)
        case "writes garbage":
            Path(file).write_bytes(b"not a safetensors file")
        case "writes another tensor":
            write(file, "scores", "F32", 4)
        case "writes BF16":
            write(file, "logits", "BF16", 2)


def write(file: str, name: str, dtype: str, size: int) -> None:
    """One tensor of zeros, shape [1, 3, 5], in the safetensors container."""
    entry = {"dtype": dtype, "shape": [1, 3, 5], "data_offsets": [0, 15 * size]}
    header = json.dumps({name: entry}).encode()
    Path(file).write_bytes(len(header).to_bytes(8, "little") + header + bytes(15 * size))


def main() -> None:
    behaviour = sys.argv[1]
    if len(sys.argv) > 2:
        state = Path(sys.argv[2])
        if state.exists():
            behaviour = "works"
        state.touch()
    start(behaviour)
    for line in sys.stdin:
        request = json.loads(line)
        number = request["id"]
        if request["method"] == "hello":
            say({"id": number, "result": greeting(behaviour)})
            if behaviour == "stops reading":
                hang()
        elif request["method"] == "run":
            run(behaviour, request["params"])
            say(answer(behaviour, number, request["params"]))
        elif behaviour == "ignores bye":
            hang()
        else:
            say({"id": number, "result": {}})
            return


if __name__ == "__main__":
    main()
