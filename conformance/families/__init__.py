"""The families, by name; a family's modules are imported when it is first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from conformance.errors import BadInput
from conformance.families.base import Family

__all__ = ["FAMILIES", "family_of"]

FAMILIES = {"plamo3": "conformance.families.plamo3"}


@cache
def family_of(name: str) -> Family:
    """The family called `name`.

    Raises:
        BadInput: there is no such family.
    """
    if name not in FAMILIES:
        raise BadInput.value("model_type", name, " or ".join(FAMILIES))
    family = import_module(FAMILIES[name]).FAMILY
    assert isinstance(family, Family)
    return family
