"""`conformance replay`: a bundle again, on its backend or another. Exit 0 the law holds, 1 it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.backends.registry import backend_named
from conformance.backends.released import code_words, dresser, released_code, sources_of
from conformance.bundles import Bundle, read_bundle, replay, replay_predicted, same_model
from conformance.compare.verdict import Grade
from conformance.environments import cache_directory
from conformance.errors import BadInput, Unsupported
from conformance.predictions import predicted_words
from conformance.report.record import verdict_data, verdict_words
from conformance.runs import Session

__all__ = ["replay_bundle"]


def replay_bundle(
    bundle: Annotated[Path, typer.Argument(help="The bundle's directory.")],
    backend: Annotated[str | None, typer.Option(help="Another backend than the one it failed on.")] = None,
    release_code: Annotated[list[str] | None, typer.Option(help="Run released code: R=DIR or R=hub.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a failing example again: same model, same feed, no hypothesis."""
    stored = read_bundle(bundle)
    chosen = backend_named(backend or stored.backend)
    code = released_code(chosen, sources_of(release_code or ()))
    if chosen.name == stored.backend:
        _require_same_code(stored, code_words(chosen, code), bundle)
    checkpoints = cache_directory() / "checkpoints"
    session = Session()
    try:
        session.add(chosen, dresser(code, checkpoints))
        with Console(stderr=True).status(f"starting {chosen.name}"):
            outcome = replay(stored, session, chosen.name, checkpoints)
            residual = replay_predicted(stored, session, chosen.name, checkpoints)
    except Unsupported as reason:
        raise typer.Exit(_unjudged(f"{chosen.name} could not be judged: {reason}")) from None
    finally:
        session.close()
    besides = None if residual is None else predicted_words(stored.faults, residual)
    if as_json:
        answer = {"holds": outcome.holds, "text": outcome.text, "prediction": besides}
        print(json.dumps({**answer, **verdict_data(outcome.verdict)}, indent=1))
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"case: {stored.case}: {stored.claim.label}", markup=False)
        where = f"seed {stored.seed}" if stored.seed is not None else f"in {stored.checkpoint}"
        console.print(f"model: {stored.spec.describe()}, {where}", markup=False)
        if not same_model(stored, checkpoints):
            console.print(
                "note: this version makes another checkpoint of the same spec and seed than was recorded"
            )
        found = stored.found
        console.print(f"recorded on {stored.backend}: {found['grade']}, error / noise {found['ratio']:.3g}")
        console.print(f"now on {chosen.name}: {verdict_words(outcome.verdict)}: {outcome.text}", markup=False)
        if besides is not None:
            console.print(f"  {besides}", markup=False)
        for pair, difference in outcome.three_way.items():
            console.print(f"  {pair}: {difference:.3g}", markup=False)
    if outcome.verdict.grade is Grade.ERROR:
        raise typer.Exit(2)
    raise typer.Exit(0 if outcome.holds else 1)


def _require_same_code(stored: Bundle, code: str, bundle: Path) -> None:
    """A failure of released code says nothing of a stand-in, and the other way round."""
    recorded = stored.provenance.get("code", code)
    if code != recorded:
        hint = "name none"
        if recorded.startswith("sha256"):
            hint = f"name it with --release-code {stored.spec.release}=DIR"
        want = f"{recorded}, which the bundle was recorded with"
        raise BadInput(f"code = {code!r}, but should be {want}; {hint} [{bundle}]")


def _unjudged(sentence: str) -> int:
    Console(stderr=True, highlight=False).print(sentence, markup=False)
    return 2
