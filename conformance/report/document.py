"""The JSON report: every cell's record, and the provenance of what ran (docs/report.md)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from conformance.report.matrix import summary

__all__ = ["SCHEMA_VERSION", "document", "write_document"]

SCHEMA_VERSION = 1


def document(
    records: Sequence[dict[str, Any]],
    provenance: Mapping[str, Any],
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The report as one JSON object, valid by report.schema.json."""
    report = {
        "schema": SCHEMA_VERSION,
        "summary": summary(records),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "settings": dict(settings),
        "seconds": dict(seconds),
        "backends": dict(provenance),
        "cells": [dict(record) for record in records],
    }
    schema = json.loads(resources.files("conformance.report").joinpath("report.schema.json").read_text())
    jsonschema.validate(report, schema)
    return report


def write_document(path: Path, report: Mapping[str, Any]) -> None:
    """Write the report whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    os.replace(draft, path)
