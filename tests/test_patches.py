"""Patches as data: what they name exists, as far as that can be seen without the engines."""

from __future__ import annotations

from importlib import import_module

import pytest

from conformance.backends.registry import known_backends
from conformance.errors import BadInput
from conformance.faults import faults_of, find
from conformance.patches import Patch, find_patch, patched_backend, patches_of

PATCHES = patches_of("plamo3")


def test_there_are_several_for_each_engine() -> None:
    names = [patch.name for patch in PATCHES]
    assert len(set(names)) == len(names)
    count = {backend: sum(p.backend == backend for p in PATCHES) for backend in known_backends()}
    assert count["vllm"] >= 8
    assert count["plamo3-2604"] + count["plamo3-4k"] >= 8
    assert count["reference"] == 0


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_what_a_patch_names_exists(patch: Patch) -> None:
    module, _, function = patch.apply.partition(":")
    assert getattr(import_module(module), function).__doc__
    assert patch.what.endswith(".")
    assert patch.releases
    assert set(patch.releases) <= set(known_backends()[patch.backend].releases)
    if patch.fault is not None:
        find(faults_of("plamo3").FAULTS, patch.fault)


@pytest.mark.parametrize("module", sorted({patch.apply.partition(":")[0] for patch in PATCHES}))
def test_every_function_is_planted(module: str) -> None:
    used = {patch.apply for patch in PATCHES}
    assert {f"{module}:{name}" for name in import_module(module).__all__} <= used


def test_a_name_is_found_or_the_nearest_offered() -> None:
    assert find_patch(PATCHES, "crop-ignored").where == "Cache.crop"
    wrong = f"patch = 'crop-ignord', but should be one of the {len(PATCHES)} patches"
    with pytest.raises(BadInput, match=f"^{wrong}; did you mean crop-ignored\\?$"):
        find_patch(PATCHES, "crop-ignord")
    with pytest.raises(BadInput, match=r"patches$"):
        find_patch(PATCHES, "zzz")


def test_a_patched_backend_is_the_plain_one_in_another_worker() -> None:
    plain, patched = known_backends()["plamo3-4k"], patched_backend("plamo3-4k")
    assert patched.name == "plamo3-4k-patched"
    assert patched.name not in known_backends()
    assert patched.options["adapter"] == plain.adapter
    assert patched.options["releases"] == ["4k"]
    assert (patched.environment, patched.release_code) == (plain.environment, plain.release_code)
