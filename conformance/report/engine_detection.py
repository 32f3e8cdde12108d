"""The page that patches of engines write: what was planted where, and which case caught it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.engine_mutants import Planting

__all__ = ["engines_page"]

_COMMAND = "nox -s mutants"


def engines_page(plantings: Sequence[Planting], titles: Mapping[str, str]) -> str:
    """docs/detection-engines.md.

    Args:
        plantings: what came of every patch.
        titles: backend → what it runs.
    """
    caught = sum(not planting.problem for planting in plantings)
    lines = [
        "# Faults planted in code that we did not write",
        "",
        f"Written by `{_COMMAND}`. [detection.md](detection.md) plants faults in our own deviating model;",
        "here each fault is a patch of an engine's own code, made at run time in its worker, and the patched",
        f"engine is judged as any backend is. {caught} of {len(plantings)} are caught on every release that",
        "they are planted on.",
        "",
        "A catch is a claim that fails with the patch and holds without it, on the same engine, model and",
        "tokens: known differences of the engine do not count. Cases are tried in the order of the chapters",
        "until one catches the patch; the column says which one, and after how many. The effect is error /",
        "noise. *Reached* counts how often the patched code did something else than the engine's own would",
        "have done. A patch that was never reached is an error, so that an engine that renames or no longer",
        "calls something is noticed.",
    ]
    for backend in dict.fromkeys(planting.patch.backend for planting in plantings):
        lines += [
            "",
            f"## `{backend}`: {titles[backend]}",
            "",
            "| patch | what | in | shows in | same as | caught by | claim | effect | reached |",
            "|---|---|---|---|---|---|---|---:|---:|",
        ]
        lines += [row for p in plantings if p.patch.backend == backend for row in _rows(p)]
    return "\n".join([*lines, ""])


def _rows(planting: Planting) -> list[str]:
    """One line for every release that the patch is planted on."""
    patch = planting.patch
    same = f"`{patch.fault}`" if patch.fault else ""
    rows = []
    for release in patch.releases:
        name = f"`{patch.name}`" + (f" on {release}" if len(patch.releases) > 1 else "")
        catch = next((catch for catch in planting.catches if catch.release == release), None)
        ending = "**nothing** | | |"
        if catch is not None:
            after = planting.judged[release].index(catch.case) + 1
            effect = "no number" if catch.ratio == float("inf") else f"{catch.ratio:.2g}"
            ending = f"`{catch.case}`, number {after} | {catch.claim} | {effect} |"
        start = f"| {name} | {patch.what} | `{patch.where}` | {patch.shows} | {same} |"
        rows.append(f"{start} {ending} {planting.reached} |")
    return rows
