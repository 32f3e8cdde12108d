"""The HTML report: the JSON report's content as one self-contained page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from conformance.report.matrix import known_words, square_words

__all__ = ["page", "write_page"]


def page(report: Mapping[str, Any]) -> str:
    """One page, no scripts, nothing loaded from elsewhere.

    Args:
        report: what `conformance.report.document.document` returned.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["square"] = square_words
    environment.filters["prediction"] = lambda entry: known_words(entry, entry["ratio"])
    cells = report["cells"]
    return environment.get_template("page.html.jinja").render(
        report=report,
        columns=list(dict.fromkeys((c["backend"], c["release"]) for c in cells)),
        laws={c["case"]: c["law"] for c in cells},
        cells={(c["case"], c["backend"], c["release"]): c for c in cells},
    )


def write_page(path: Path, report: Mapping[str, Any]) -> None:
    """Write the page whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    draft.write_text(page(report), encoding="utf-8")
    os.replace(draft, path)
