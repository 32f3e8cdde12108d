"""The study's plots, as SVG. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from conformance.calibration.records import BINS_PER_OCTAVE, Group, Records, Spread
from conformance.calibration.subjects import DTYPES
from conformance.calibration.summary import in_force, reaches, rows, tail_of, unseen
from conformance.faults import VALUES

__all__ = ["PLOTS", "draw_plots"]

T = TypeVar("T")

_TITLES = {"float32": "FP32", "bfloat16": "BF16"}
_INK, _FAINT = "#333333", "#bbbbbb"
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # told apart by the colour-blind


def draw_plots(records: Records, directory: Path) -> None:
    """Write every plot of `PLOTS`; equal records give equal files."""
    matplotlib = import_module("matplotlib")
    look = {
        "svg.hashsalt": "conformance",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _INK,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(look):
        for name, draw in PLOTS.items():
            figure = import_module("matplotlib.figure").Figure(figsize=(9, 3.6), layout="constrained")
            draw(records, figure)
            figure.savefig(directory / f"{name}.svg", format="svg", metadata={"Date": None})


def _coloured(things: Iterable[T]) -> list[tuple[str, T]]:
    """Each thing with a colour of its own.

    Raises:
        ValueError: there are more things than colours: a plot would leave some of them out.
    """
    listed = list(things)
    if len(listed) > len(_COLOURS):
        raise ValueError(f"{len(listed)} lines, but there are {len(_COLOURS)} colours")
    return list(zip(_COLOURS[: len(listed)], listed, strict=True))


def _survival(records: Records, figure: Any) -> None:
    """Share of positions beyond a ratio, for each engine; dashed, how the tail may go on."""
    for axes, dtype in _panels(figure):
        every = rows(records, dtype)
        for colour, engine in _coloured(dict.fromkeys(row.engine for row in every)):
            spread = sum((row.spread for row in every if row.engine == engine), Spread(0, 0, {}))
            axes.step(*_beyond(spread), where="post", color=colour, label=engine)
        tail = tail_of(records, dtype)
        ahead = np.linspace(tail.start, 10, 50)
        axes.plot(
            ahead, [tail.exponential(r) for r in ahead], "--", color=_INK, lw=0.8, label="exponential tail"
        )
        axes.plot(ahead, [tail.power(r) for r in ahead], ":", color=_INK, label="power law")
        axes.set(yscale="log", xlim=(0, 10), ylim=(1e-12, 2), xlabel="error / noise")
        axes.set_ylabel("share of positions beyond")
        _bounds(axes, in_force()[:1])
        if dtype == DTYPES[0]:
            axes.legend(fontsize=7)


def _faults(records: Records, figure: Any) -> None:
    """Every fault as a line from the model that shows it least to the one that shows it most."""
    for axes, dtype in _panels(figure):
        for row in rows(records, dtype):
            axes.axvspan(0.1, row.worst, color=_FAINT, alpha=0.15, lw=0)
        found = [one for one in reaches(records, dtype) if np.isfinite(one.most)]
        for place, one in enumerate(found):
            colour = _COLOURS[0] if one.reveals == VALUES else _COLOURS[1]
            axes.plot([one.least, one.most], [place, place], color=colour, lw=1.2, solid_capstyle="round")
        axes.set(xscale="log", xlim=(0.3, 1e8), xlabel="error / noise of the worst position", yticks=[])
        axes.set_ylabel(f"{len(found)} faults")
        _bounds(axes, in_force())


def _thresholds(records: Records, figure: Any) -> None:
    """What a bound costs on either side: false alarms, and faults that stay below it."""
    chances, missed = figure.subplots(1, 2)
    bounds = 2.0 ** np.arange(0.75, 7.01, 0.125)
    for colour, dtype in _coloured(DTYPES):
        tail = tail_of(records, dtype)
        chances.plot(
            bounds, [tail.power(b) for b in bounds], ":", color=colour, label=f"{_TITLES[dtype]}, power law"
        )
        chances.plot(
            bounds,
            [tail.exponential(b) for b in bounds],
            "--",
            color=colour,
            label=f"{_TITLES[dtype]}, exponential",
        )
        count = [len(unseen(records, dtype, b)) for b in bounds]
        missed.step(bounds, count, where="post", color=colour, label=_TITLES[dtype])
    chances.set(xscale="log", yscale="log", ylim=(1e-18, 1), xlabel="bound")
    chances.set_ylabel("chance that a conforming position is beyond")
    missed.set(xscale="log", xlabel="bound", ylim=(0, None))
    missed.set_ylabel("faults that stay below on some model")
    for axes in (chances, missed):
        axes.set_xticks([2, 4, 8, 16, 32, 64, 128], ["2", "4", "8", "16", "32", "64", "128"])
        axes.minorticks_off()
        _bounds(axes, in_force())
        axes.legend(fontsize=7)


def _noise(records: Records, figure: Any) -> None:
    """Ratios of new relabellings, by how many relabellings their noise was measured from."""
    for axes, dtype in _panels(figure):
        makes: dict[int, tuple[Spread, float]] = {}
        for row in rows(records, dtype, lambda group: group.noise, _new_relabellings):
            makes[int(row.engine.rpartition(" ")[2])] = row.spread, row.worst
        counts = sorted(makes)
        shares = {"median": 0.5, "99 %": 0.99, "99.9 %": 0.999}
        for colour, (name, share) in _coloured(shares.items()):
            axes.plot(counts, [makes[n][0].quantile(share) for n in counts], "o-", color=colour, label=name)
        axes.plot(counts, [makes[n][1] for n in counts], "o-", color=_INK, label="largest")
        axes.set(xscale="log", yscale="log", xlabel="relabellings that the noise is measured from")
        axes.set_ylabel("error / noise of others")
        axes.set_xticks(counts, [str(n) for n in counts])
        ticks = [0.5, 1, 2, 4, 8, 16]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        if dtype == DTYPES[0]:
            axes.legend(fontsize=7)


def _new_relabellings(group: Group) -> bool:
    """Is it one of them, judged by the noise of relabellings alone?"""
    return group.engine == "reference, new relabellings" and group.noise.startswith("relabellings")


PLOTS: Mapping[str, Callable[[Records, Any], None]] = {
    "survival": _survival,
    "faults": _faults,
    "thresholds": _thresholds,
    "noise": _noise,
}


def _panels(figure: Any) -> list[tuple[Any, str]]:
    """One panel for each dtype, side by side."""
    panels = list(zip(figure.subplots(1, len(DTYPES)), DTYPES, strict=True))
    for axes, dtype in panels:
        axes.set_title(_TITLES[dtype], fontsize=10)
    return panels


def _bounds(axes: Any, bounds: tuple[float, ...]) -> None:
    for bound in bounds:
        axes.axvline(bound, color=_INK, lw=0.8)
        axes.annotate(f"{bound:g}", (bound, 1), xycoords=("data", "axes fraction"), ha="right", va="top")


def _beyond(spread: Spread) -> tuple[list[float], list[float]]:
    """(ratio, share of positions at or beyond it) at the lower edge of every bin with something in it."""
    numbers = sorted(spread.bins)
    edges = [2 ** (number / BINS_PER_OCTAVE) for number in [*numbers, numbers[-1] + 1]] if numbers else [1.0]
    shares = [spread.beyond(number) / spread.positions for number in numbers]
    return edges, [*shares, 0.0]
