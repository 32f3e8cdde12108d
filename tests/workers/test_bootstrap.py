"""Starting an adapter in a process of its own: stdout is the protocol's, and the engine's path is its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import conformance
from conformance.backends.registry import Backend
from conformance.checkpoints.store import Checkpoint
from conformance.feeds import Feed, Forward
from conformance.workers.host import Worker, WorkerError
from tests import toys
from tests.conftest import ROOT

Start = Callable[..., Worker]


@pytest.fixture
def start(toy: Callable[..., Backend], tmp_path: Path) -> Iterator[Start]:
    workers: list[Worker] = []

    def make(name: str, **options: object) -> Worker:
        backend = toy(name, **options)
        environment = backend.worker_environment()
        worker = Worker(name, backend.argv(), tmp_path / "log", environment, directory=tmp_path)
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.stop()


def test_what_an_engine_prints_goes_to_the_log(start: Start, checkpoint: Checkpoint, tmp_path: Path) -> None:
    feed = Feed(tokens=((3, 1, 4),), steps=(Forward(3),))
    out = tmp_path / "out.safetensors"
    params = {"checkpoint": str(checkpoint.path), "feed": feed.to_dict(), "logits": str(out)}
    assert start("Loud").run(params)["logits"] == str(out)
    assert (tmp_path / "log").read_text() == "said by Python\nsaid by C\nsaid by a child\n"
    model = toys.Toy({}).prepare(checkpoint.path)
    np.testing.assert_array_equal(load_file(out)["logits"], toys.Toy({}).run(model, feed))


def test_a_worker_sees_the_package_and_not_what_lies_beside_it(start: Start, tmp_path: Path) -> None:
    numerics = start("Curious", threads=3).hello().numerics
    assert numerics["options"] == {"threads": 3}
    assert numerics["directory"] == str(tmp_path)
    path = numerics["path"]
    assert path[0] == str(ROOT)  # asked for by the option `paths`
    package = Path(conformance.__file__).parent
    beside = {str(package), str(package / "workers"), "", str(tmp_path)}
    assert beside.isdisjoint(path)


def test_a_worker_that_leaves_while_it_starts(start: Start) -> None:
    with pytest.raises(WorkerError) as caught:
        start("Stillborn").hello()
    assert str(caught.value) == (
        "exited with code 1 during hello; last words: libmagic.so: cannot open shared object file"
    )


def test_the_hosts_python_settings_stay_with_the_host(monkeypatch: pytest.MonkeyPatch, toy: object) -> None:
    for name in ("PYTHONPATH", "PYTEST_CURRENT_TEST", "COV_CORE_SOURCE"):
        monkeypatch.setenv(name, "host")
    monkeypatch.setenv("KEPT", "yes")
    environment = Backend(name="x", title="x", adapter="a:B").worker_environment(threads=2)
    assert {name for name, value in environment.items() if value == "host"} == set()
    assert environment["KEPT"] == "yes"
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "2"
    assert environment["PATH"] == os.environ["PATH"]
