"""One set of probes, truths and predictions for all tests of triage: dear, and changed by nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.detection import LocalRuns, plant
from conformance.faults import faults_of
from conformance.feeds import CAPABILITIES
from conformance.triage.predictions import Predictions
from conformance.triage.probes import Probe, Setting, ladder
from conformance.triage.readings import Reading

Answers = Callable[[Sequence[str], Sequence[str]], list[Reading]]


@pytest.fixture(scope="session")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Everything that the deviating model can be asked, on 4k."""
    return Setting(
        family="plamo3",
        release="4k",
        limits={},
        capabilities=frozenset(CAPABILITIES) - {"ragged"},
        dtypes=frozenset({"float32", "bfloat16"}),
        checkpoints=tmp_path_factory.mktemp("checkpoints"),
    )


@pytest.fixture(scope="session")
def probes(setting: Setting) -> dict[str, Probe]:
    """The ladder, by name."""
    return {probe.name: probe for probe in ladder(setting, faults_of("plamo3").FAULTS)}


@pytest.fixture(scope="session")
def predictions() -> Predictions:
    return Predictions("plamo3")


@pytest.fixture(scope="session")
def runs() -> LocalRuns:
    return LocalRuns(ReferenceAdapter({}))


@pytest.fixture(scope="session")
def answers(runs: LocalRuns, probes: dict[str, Probe]) -> Answers:
    """Readings of the reference with some faults on the probes of some names."""

    def readings(faults: Sequence[str], names: Sequence[str]) -> list[Reading]:
        plant(runs, faults)
        return [
            Reading(
                probes[name],
                runs.run("faulty", probes[name].checkpoint, probes[name].feed).result(),
                runs.truth(probes[name].checkpoint, probes[name].feed).result(),
            )
            for name in names
        ]

    return readings


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"
