"""Recording, verifying and comparing goldens: who is judged how, who is refused, and what is written down."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.checkpoints.layout import Layout
from conformance.compare.verdict import Grade, Place
from conformance.errors import BadInput
from conformance.families.base import Spec
from conformance.goldens.store import Golden, weights_hash
from conformance.goldens.trials import GoldenTrial
from conformance.goldens.verify import Party, Verified, compare_goldens, record, verify
from tests import toys
from tests.families.plamo3.sizes import tiny
from tests.goldens.sessions import WHOLE, Brief, GoldenSession, Nudged, Settling, session_of, trial_of

ALL = (
    Brief,
    Nudged,
    Settling,
    toys.Clipped,
    toys.Half,
    toys.Lifted,
    toys.NotFinite,
    toys.Raises,
    toys.Short,
    toys.Unable,
    toys.Whole,
)
CHANGED = "the weights of this spec and seed are no longer those that it was recorded with"


@pytest.fixture(scope="module")
def session() -> GoldenSession:
    return session_of(*ALL)


def made(
    session: GoldenSession,
    checkpoints: Path,
    trials: Iterable[GoldenTrial],
    producer: str = "reference",
    agree: Iterable[str] = (),
    said: list[str] | None = None,
) -> list[Golden]:
    (maker,) = session.parties([producer])
    say = [].append if said is None else said.append
    return record(session, trials, maker, session.parties(agree), checkpoints, "the command", say)


@pytest.fixture
def golden(session: GoldenSession, spec: Spec, tmp_path: Path) -> Golden:
    (one,) = made(session, tmp_path, [trial_of(spec)])
    return one


# Verifying


def judged(session: GoldenSession, name: str, golden: Golden, tmp_path: Path) -> Verified:
    (result,) = verify(session, name, [golden], tmp_path)
    assert result.id == golden.id
    return result


@pytest.mark.parametrize(
    ("name", "grade", "first_bad"),
    [
        ("reference", Grade.EXACT, None),
        ("Nudged", Grade.ROUNDING, None),
        ("Lifted", Grade.DIVERGENT, Place(0, 0)),
    ],
)
def test_a_backend_is_graded_by_the_stored_logits(
    session: GoldenSession, golden: Golden, tmp_path: Path, name: str, grade: Grade, first_bad: Place | None
) -> None:
    verdict = judged(session, name, golden, tmp_path).verdict
    assert verdict is not None
    assert (verdict.grade, verdict.first_bad, verdict.compared) == (grade, first_bad, 10)


def test_one_stored_logit_decides(session: GoldenSession, golden: Golden, tmp_path: Path) -> None:
    logits = golden.logits.copy()
    logits[0, 6, 11] += 1e-3
    verdict = judged(session, "reference", replace(golden, logits=logits), tmp_path).verdict
    assert verdict is not None
    assert (verdict.grade, verdict.first_bad, verdict.bad) == (Grade.DIVERGENT, Place(0, 6), 1)


BROKEN = {
    "NotFinite": "logits[0, 2, 7] = nan, but should be finite (1 of 10 positions)",
    "Short": "logits: shape = [1, 9, 97], but should be [1, 10, 97]",
    "Clipped": "logits: shape = [1, 10, 96], but should be [1, 10, 97]",
    "Half": "logits: dtype = float16, but should be float32 or float64",
    "Raises": "failed: no kernel for head size 24\nRun with DEBUG=1 for more.",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_backend_without_usable_logits_is_an_error(
    session: GoldenSession, golden: Golden, tmp_path: Path, name: str
) -> None:
    verdict = judged(session, name, golden, tmp_path).verdict
    assert verdict is not None
    assert (verdict.grade, verdict.problem) == (Grade.ERROR, BROKEN[name])


NOT_ASKED: dict[str, tuple[str, Callable[[GoldenTrial], GoldenTrial], str]] = {
    "another release": ("Whole", lambda t: trial_of(tiny()), "does not claim 4k"),
    "decode": ("Whole", lambda t: replace(t, feed=WHOLE.token_by_token(5)), "no decode"),
    "a dtype": ("Whole", lambda t: replace(t, feed=replace(WHOLE, dtype="bfloat16")), "no bfloat16"),
    "a head size": ("Whole", lambda t: t, "head_dim 16 is outside its limit: one_of [24]"),
    "a length": ("Brief", lambda t: t, "length 10 is outside its limit: max 8"),
    "what it finds out when it runs": ("Unable", lambda t: t, "no sequences above 8 tokens"),
}


@pytest.mark.parametrize("name", NOT_ASKED)
def test_a_backend_that_cannot_be_asked_has_no_verdict(
    session: GoldenSession, spec: Spec, tmp_path: Path, name: str
) -> None:
    backend, change, reason = NOT_ASKED[name]
    (golden,) = made(session, tmp_path, [change(trial_of(spec))])
    assert judged(session, backend, golden, tmp_path) == Verified("tiny", None, reason)


@pytest.mark.parametrize("name", ["weights", "seed", "spec", "recipe"])
def test_other_weights_than_then_are_an_error(
    session: GoldenSession, golden: Golden, spec: Spec, tmp_path: Path, name: str
) -> None:
    changes = {
        "weights": {"weights": "0" * 64},
        "seed": {"seed": 7},
        "spec": {"spec": replace(spec, window_size=5)},  # type: ignore[type-var]
        "recipe": {"layout": Layout(recipe="fresh")},
    }
    changed = replace(golden, **changes[name])  # type: ignore[arg-type]
    verdict = judged(session, "reference", changed, tmp_path).verdict
    assert verdict is not None
    assert (verdict.grade, verdict.problem) == (Grade.ERROR, CHANGED)


# Recording


def test_what_is_recorded(spec: Spec, tmp_path: Path) -> None:
    session = session_of(Nudged)
    feed = WHOLE.token_by_token(5)
    said: list[str] = []
    (golden,) = made(session, tmp_path, [trial_of(spec, feed)], agree=["Nudged"], said=said)
    assert (golden.id, golden.spec, golden.seed, golden.feed) == ("tiny", spec, 0, feed)
    assert golden.weights == weights_hash(spec, 0, Layout())
    assert golden.command == "the command"
    assert golden.producer == {
        "backend": "reference",
        "code": "its own",
        "versions": {"numpy": np.__version__},
        "numerics": {"threads": 1},
        "platform": f"{platform.system()} {platform.machine()}",
        "device": "not told",
    }
    (agreed,) = golden.agreed
    assert (agreed.backend, agreed.code, agreed.grade) == ("Nudged", "its own", "rounding")
    assert agreed.versions == {"numpy": np.__version__}
    assert 0 < agreed.ratio <= 8
    assert golden.logits.shape == (1, 10, 97)
    assert said == ["tiny: rounding, agreed by Nudged"]


def test_a_producer_is_asked_after_it_ran_what_it_computes_with(
    session: GoldenSession, spec: Spec, tmp_path: Path
) -> None:
    (golden,) = made(session, tmp_path, [trial_of(spec)], "Settling")
    assert golden.producer["numerics"] == {"device": "abacus", "kernel": "dot"}
    assert golden.producer["device"] == "abacus"


def test_any_backend_can_produce_and_any_be_judged_by_it(
    session: GoldenSession, spec: Spec, tmp_path: Path
) -> None:
    (golden,) = made(session, tmp_path, [trial_of(spec)], "Nudged")
    grades = {
        name: verdict.grade
        for name in ("Nudged", "reference", "Lifted")
        if (verdict := judged(session, name, golden, tmp_path).verdict) is not None
    }
    assert grades == {"Nudged": Grade.EXACT, "reference": Grade.ROUNDING, "Lifted": Grade.DIVERGENT}


def test_who_can_be_asked_for_some_agrees_to_those(session: GoldenSession, tmp_path: Path) -> None:
    spec = tiny(head_dim=24, window_size=4)
    late = replace(spec, max_position_embeddings=262_144, rope_scaling_factor=16.0)
    trials = [trial_of(late, name="late"), trial_of(spec, name="short")]
    said: list[str] = []
    goldens = made(session, tmp_path, trials, agree=["Whole", "Nudged"], said=said)
    assert [[a.backend for a in golden.agreed] for golden in goldens] == [["Whole", "Nudged"], ["Nudged"]]
    assert said == ["late: rounding, agreed by Whole, Nudged", "short: rounding, agreed by Nudged"]


REFUSED: dict[str, tuple[str, list[str], str]] = {
    "a producer that is not the reference's like": (
        "Lifted",
        [],
        "golden tiny is not recorded: Lifted and the reference in float64 disagree: divergent, "
        "error / noise 2.1e+06, first bad at row 0 position 0",
    ),
    "a witness that is not the producer's like": (
        "reference",
        ["Nudged", "Lifted"],
        "golden tiny is not recorded: Lifted and reference disagree: divergent, "
        "error / noise 2.1e+06, first bad at row 0 position 0",
    ),
    "a producer that gives NaN": (
        "NotFinite",
        [],
        "golden tiny is not recorded: NotFinite and the reference in float64 disagree: error, "
        "logits[0, 2, 7] = nan, but should be finite (1 of 10 positions)",
    ),
    "a producer of another dtype": (
        "Half",
        [],
        "golden tiny is not recorded: Half and the reference in float64 disagree: error, "
        "logits: dtype = float16, but should be float32 or float64",
    ),
    "a producer that fails": (
        "Raises",
        [],
        "golden tiny cannot be recorded from Raises: failed: no kernel for head size 24\n"
        "Run with DEBUG=1 for more.",
    ),
    "a witness that fails": (
        "reference",
        ["Raises"],
        "golden tiny is not recorded: Raises failed: no kernel for head size 24\nRun with DEBUG=1 for more.",
    ),
    "a producer that cannot": (
        "Brief",
        [],
        "golden tiny cannot be recorded from Brief: length 10 is outside its limit: max 8",
    ),
    "a producer that finds out that it cannot": (
        "Unable",
        [],
        "golden tiny cannot be recorded from Unable: unsupported: no sequences above 8 tokens",
    ),
    "a witness that cannot be asked for any": (
        "reference",
        ["Nudged", "Whole"],
        "Whole had to agree, but can be asked for none of these goldens",
    ),
    "a witness that finds out that it cannot": (
        "reference",
        ["Unable"],
        "Unable had to agree, but can be asked for none of these goldens",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_recorded_from(session: GoldenSession, spec: Spec, tmp_path: Path, name: str) -> None:
    producer, agree, message = REFUSED[name]
    with pytest.raises(BadInput) as caught:
        made(session, tmp_path, [trial_of(spec)], producer, agree)
    assert str(caught.value) == message


def test_one_that_disagrees_on_the_last_golden_spoils_all(
    session: GoldenSession, spec: Spec, tmp_path: Path
) -> None:
    trials = [trial_of(spec, WHOLE.first(5), "five"), trial_of(spec, name="ten")]
    broken = session_of(toys.LastToken)  # right up to 8 tokens
    with pytest.raises(BadInput) as caught:
        made(broken, tmp_path, trials, agree=["LastToken"])
    assert str(caught.value).startswith("golden ten is not recorded: LastToken and reference disagree: ")
    assert str(caught.value).endswith("first bad at row 0 position 9")


def test_whose_code_ran_is_recorded(session: GoldenSession, spec: Spec, tmp_path: Path) -> None:
    hello = session.hello("reference")
    maker = Party("reference", hello, "sha256:abc")
    witness = Party("Nudged", hello, "stand-in")
    (golden,) = record(session, [trial_of(spec)], maker, [witness], tmp_path, "", [].append)
    assert golden.producer["code"] == "sha256:abc"
    assert golden.agreed[0].code == "stand-in"


# Comparing two sets


def compared(session: GoldenSession, one: Golden, other: Golden, tmp_path: Path) -> Verified:
    (result,) = compare_goldens(session, {one.id: one}, {one.id: other}, tmp_path)
    return result


def test_goldens_that_only_one_set_has(session: GoldenSession, golden: Golden, tmp_path: Path) -> None:
    ours, theirs = {"a": golden, "b": golden}, {"b": golden, "c": golden}
    results = list(compare_goldens(session, ours, theirs, tmp_path, ("golden", "build/golden")))
    assert [result.id for result in results] == ["a", "b", "c"]
    assert (results[0].verdict, results[0].reason) == (None, "only in golden")
    assert results[1].verdict is not None
    assert (results[2].verdict, results[2].reason) == (None, "only in build/golden")


@pytest.mark.parametrize(
    ("producer", "grade", "makers"),
    [
        ("reference", Grade.EXACT, ""),
        (
            "Nudged",
            Grade.ROUNDING,
            "reference (its own, numpy {v}) → Nudged (its own, numpy {v})",
        ),
    ],
)
def test_logits_are_compared_by_noise(
    session: GoldenSession,
    golden: Golden,
    spec: Spec,
    tmp_path: Path,
    producer: str,
    grade: Grade,
    makers: str,
) -> None:
    (other,) = made(session, tmp_path, [trial_of(spec)], producer)
    result = compared(session, golden, other, tmp_path)
    assert result.verdict is not None
    assert (result.verdict.grade, result.reason) == (grade, makers.format(v=np.__version__))


def test_logits_that_differ(session: GoldenSession, golden: Golden, tmp_path: Path) -> None:
    logits = golden.logits.copy()
    logits[0, 3] += 1
    result = compared(session, golden, replace(golden, logits=logits), tmp_path)
    assert result.verdict is not None
    assert (result.verdict.grade, result.verdict.first_bad) == (Grade.DIVERGENT, Place(0, 3))
    assert result.verdict.shift == pytest.approx(1)


def test_logits_of_another_shape(session: GoldenSession, golden: Golden, tmp_path: Path) -> None:
    result = compared(session, golden, replace(golden, logits=golden.logits[:, :4]), tmp_path)
    assert result.verdict is not None
    assert result.verdict.problem == "logits: shape = [1, 4, 97], but should be [1, 10, 97]"


def test_what_changed_is_told_in_words(
    session: GoldenSession, golden: Golden, spec: Spec, tmp_path: Path
) -> None:
    wider = replace(spec, window_size=5, rope_theta=5e5)  # type: ignore[type-var, call-arg]
    changes = {
        "rope_theta 1000000.0 → 500000.0; window_size 4 → 5": replace(golden, spec=wider, weights="other"),
        "seed 0 → 3": replace(golden, seed=3, weights="other"),
        "layout.recipe telling → fresh": replace(golden, layout=Layout(recipe="fresh"), weights="other"),
        "feed 1 row x 10, whole, float32 → 1 row x 10, prefill 4 then one at a time, float32": replace(
            golden, feed=WHOLE.token_by_token(4)
        ),
        "feed: other tokens or steps": replace(golden, feed=replace(WHOLE, tokens=(tuple(range(10)),))),
        "other weights of the same spec and seed": replace(golden, weights="other"),
    }
    for words, other in changes.items():
        assert compared(session, golden, other, tmp_path) == Verified("tiny", None, words)


def test_models_of_different_families_or_releases_are_told_apart(
    session: GoldenSession, golden: Golden, tmp_path: Path
) -> None:
    result = compared(session, golden, replace(golden, spec=tiny(), weights="other"), tmp_path)
    assert result.verdict is None
    assert "max_position_embeddings 262144 → 4096" in result.reason.split("; ")


def test_two_goldens_of_weights_that_are_no_longer_made_cannot_be_compared(
    session: GoldenSession, golden: Golden, tmp_path: Path
) -> None:
    old = replace(golden, weights="old")
    result = compared(session, old, old, tmp_path)
    assert result.verdict is not None
    assert (result.verdict.grade, result.verdict.problem) == (Grade.ERROR, CHANGED)
