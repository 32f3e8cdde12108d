"""Recording and verifying goldens: the same comparison, with the noise measured here and now."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from conformance.checkpoints.store import Checkpoint, write_checkpoint
from conformance.claims import real_cells
from conformance.compare.verdict import Grade, Verdict, compare
from conformance.errors import BadInput
from conformance.goldens.store import Agreement, Golden, weights_hash
from conformance.goldens.trials import SEED, GoldenTrial
from conformance.limits import violation
from conformance.runs import Session
from conformance.workers.host import Hello

__all__ = ["Party", "Verified", "applicable", "compare_goldens", "record", "verify"]


_CHANGED = "the weights of this spec and seed are no longer those that it was recorded with"


@dataclass(frozen=True)
class Verified:
    """A golden judged: on a backend, or against another golden.

    Attributes:
        id: the golden's.
        verdict: None where nothing could be compared.
        reason: why not; or, beside a verdict on two goldens, who made them.
    """

    id: str
    verdict: Verdict | None
    reason: str = ""


@dataclass(frozen=True)
class Party:
    """A backend that takes part in recording: its name, what it said of itself, and whose code it runs."""

    name: str
    hello: Hello
    code: str


def applicable(hello: Hello, trial: GoldenTrial | Golden) -> str | None:
    """Why a backend cannot be asked for a golden, or None."""
    spec = trial.spec if isinstance(trial, Golden) else trial.model.spec
    if spec.release not in hello.releases:
        return f"does not claim {spec.release}"
    missing = sorted(trial.feed.requires - hello.capabilities)
    if missing:
        return f"no {', '.join(missing)}"
    if trial.feed.dtype not in hello.dtypes:
        return f"no {trial.feed.dtype}"
    return violation({**spec.to_dict(), "length": trial.feed.width}, hello.limits)


def verify(session: Session, name: str, goldens: Iterable[Golden], checkpoints: Path) -> Iterator[Verified]:
    """Judge a backend by stored logits.

    The noise is measured on the reference here, so a golden that real release code made elsewhere can
    judge engines on this machine, with whatever versions are installed.
    """
    hello = session.hello(name)
    for golden in goldens:
        reason = applicable(hello, golden)
        if reason is not None:
            yield Verified(golden.id, None, reason)
            continue
        if _weights_changed(golden):
            yield Verified(golden.id, Verdict(Grade.ERROR, problem=_CHANGED))
            continue
        checkpoint = write_checkpoint(checkpoints, golden.spec, golden.seed, golden.layout)
        run = session.run(name, checkpoint, golden.feed).result()
        if run.kind == "unsupported":
            yield Verified(golden.id, None, run.message)
        elif run.logits is None:
            yield Verified(golden.id, Verdict(Grade.ERROR, problem=f"{run.kind}: {run.message}"))
        else:
            yield Verified(golden.id, _compare(session, checkpoint, golden, run.logits, golden.logits))


def record(
    session: Session,
    trials: Iterable[GoldenTrial],
    producer: Party,
    witnesses: Iterable[Party],
    checkpoints: Path,
    command: str,
    say: Callable[[str], None],
) -> list[Golden]:
    """Make goldens from a producer's logits.

    Raises:
        BadInput: the producer is not within rounding of the reference, a witness not within rounding of
            the producer, or a witness was asked for none of them; the message says which golden, who, and
            by how much. Nothing is recorded then.
    """
    witnesses = tuple(witnesses)
    goldens: list[Golden] = []
    for trial in trials:
        reason = applicable(producer.hello, trial)
        if reason is not None:
            raise BadInput(f"golden {trial.id} cannot be recorded from {producer.name}: {reason}")
        model = trial.model
        checkpoint = write_checkpoint(checkpoints, model.spec, SEED, model.layout)
        logits = _logits(session, producer.name, checkpoint, trial)
        golden = Golden(
            id=trial.id,
            spec=model.spec,
            seed=SEED,
            layout=model.layout,
            weights=weights_hash(model.spec, SEED, model.layout),
            feed=trial.feed,
            logits=logits.astype(np.float32),
            producer=_pedigree(session, producer),
            command=command,
            agreed=(),
        )
        truth = session.truth(checkpoint, trial.feed).result()
        verdict = _compare(session, checkpoint, golden, logits, truth.logits)
        _require(trial.id, producer.name, "the reference in float64", verdict)
        agreed = tuple(_agreement(session, checkpoint, golden, party) for party in witnesses)
        present = tuple(agreement for agreement in agreed if agreement is not None)
        goldens.append(replace(golden, agreed=present))
        who = ", ".join(agreement.backend for agreement in present) or "nobody"
        say(f"{trial.id}: {verdict.grade.value}, agreed by {who}")
    heard = {agreement.backend for golden in goldens for agreement in golden.agreed}
    for party in witnesses:
        if party.name not in heard:
            raise BadInput(f"{party.name} had to agree, but can be asked for none of these goldens")
    return goldens


def compare_goldens(
    session: Session,
    ours: Mapping[str, Golden],
    theirs: Mapping[str, Golden],
    checkpoints: Path,
    names: tuple[str, str] = ("the first", "the second"),
) -> Iterator[Verified]:
    """Two sets of goldens against each other: what only one has, what is of another model, what differs."""
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs:
            yield Verified(name, None, f"only in {names[name not in ours]}")
            continue
        one, other = ours[name], theirs[name]
        changes = _changes(one, other)
        if changes:
            yield Verified(name, None, "; ".join(changes))
            continue
        makers = f"{_maker(one)} → {_maker(other)}" if _maker(one) != _maker(other) else ""
        if _weights_changed(one):
            yield Verified(name, Verdict(Grade.ERROR, problem=_CHANGED), makers)
            continue
        checkpoint = write_checkpoint(checkpoints, one.spec, one.seed, one.layout)
        yield Verified(name, _compare(session, checkpoint, one, other.logits, one.logits), makers)


def _changes(one: Golden, other: Golden) -> list[str]:
    """What keeps two goldens from being of the same trial, in words: `window_size 5 → 6`."""
    mine, others = one.spec.to_dict(), other.spec.to_dict()
    pairs: dict[str, tuple[object, object]] = {
        key: (mine.get(key), others.get(key)) for key in sorted({*mine, *others})
    }
    pairs["seed"] = (one.seed, other.seed)
    pairs["layout.recipe"] = (one.layout.recipe, other.layout.recipe)
    pairs["feed"] = (one.feed.describe(), other.feed.describe())
    changes = [f"{key} {was} → {now}" for key, (was, now) in pairs.items() if was != now]
    if one.feed != other.feed and pairs["feed"][0] == pairs["feed"][1]:
        changes.append("feed: other tokens or steps")
    if not changes and one.weights != other.weights:
        changes.append("other weights of the same spec and seed")
    return changes


def _maker(golden: Golden) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in golden.producer["versions"].items())
    return f"{golden.producer['backend']} ({golden.producer['code']}, {versions})"


def _weights_changed(golden: Golden) -> bool:
    return weights_hash(golden.spec, golden.seed, golden.layout) != golden.weights


def _pedigree(session: Session, producer: Party) -> dict[str, object]:
    """Who made logits, asked after it did: some numerics are settled by the first run."""
    now = session.hello_again(producer.name) or producer.hello
    return {
        "backend": producer.name,
        "code": producer.code,
        "versions": dict(now.versions),
        "numerics": dict(now.numerics),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": now.numerics.get("device", "not told"),
    }


def _compare(
    session: Session, checkpoint: Checkpoint, golden: Golden, got: np.ndarray, want: np.ndarray
) -> Verdict:
    truth = session.truth(checkpoint, golden.feed).result()
    return compare(got, want, truth.noise, real_cells(golden.feed), golden.feed.dtype)


def _logits(session: Session, name: str, checkpoint: Checkpoint, trial: GoldenTrial) -> np.ndarray:
    run = session.run(name, checkpoint, trial.feed).result()
    if run.logits is None:
        raise BadInput(f"golden {trial.id} cannot be recorded from {name}: {run.kind}: {run.message}")
    return run.logits


def _agreement(session: Session, checkpoint: Checkpoint, golden: Golden, party: Party) -> Agreement | None:
    if applicable(party.hello, golden) is not None:
        return None
    run = session.run(party.name, checkpoint, golden.feed).result()
    if run.kind == "unsupported":
        return None
    if run.logits is None:
        raise BadInput(f"golden {golden.id} is not recorded: {party.name} {run.kind}: {run.message}")
    verdict = _compare(session, checkpoint, golden, run.logits, golden.logits)
    _require(golden.id, party.name, golden.producer["backend"], verdict)
    return Agreement(party.name, party.code, dict(party.hello.versions), verdict.grade.value, verdict.ratio)


def _require(golden_id: str, who: str, whom: str, verdict: Verdict) -> None:
    if not verdict.grade.passes:
        figures = verdict.problem or f"error / noise {verdict.ratio:.3g}, first bad at {verdict.first_bad}"
        raise BadInput(
            f"golden {golden_id} is not recorded: {who} and {whom} disagree: {verdict.grade.value}, {figures}"
        )
