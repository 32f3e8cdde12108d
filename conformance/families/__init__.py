"""The families, by name; a family's modules are imported when it is first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from conformance.errors import BadInput
from conformance.families.base import Family

__all__ = ["FAMILIES", "family_of", "family_of_model"]

FAMILIES = {"plamo3": "conformance.families.plamo3", "gemma4": "conformance.families.gemma4"}


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


def family_of_model(model_type: object, where: str | None = None) -> Family:
    """The family whose config.json has this `model_type`.

    Raises:
        BadInput: no family's has.
    """
    known = {name: family for family in map(family_of, FAMILIES) for name in family.model_types}
    for name, family in known.items():  # a loop, for JSON has values that no dictionary can be asked for
        if name == model_type:
            return family
    raise BadInput.value("model_type", model_type, " or ".join(known), where)
