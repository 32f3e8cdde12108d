"""Probes: ordered, within what a backend can do, and enough of them for every fault to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.families import family_of
from conformance.faults import NOTHING, ROUNDING, faults_of
from conformance.feeds import CAPABILITIES
from conformance.limits import violation
from conformance.triage.probes import Probe, Setting, further_probes, kind_probes, ladder, span_claims

BANK = faults_of("plamo3").FAULTS


@pytest.mark.parametrize("release", [release.name for release in family_of("plamo3").releases])
def test_every_fault_that_can_be_named_can_show_on_a_probe(setting: Setting, release: str) -> None:
    probes = ladder(replace(setting, release=release), BANK)
    hidden = [
        fault.id
        for fault in BANK
        if fault.reveals not in (NOTHING, ROUNDING)
        and not any(fault.applies(probe.spec, probe.feed) for probe in probes)
    ]
    # What is left needs the other release.
    assert all(
        all("2604" in condition.name for condition in fault.where if "2604" in condition.name)
        and any("2604" in condition.name for condition in fault.where)
        for fault in BANK
        if fault.id in hidden
    )
    assert bool(hidden) == (release == "4k")


def test_the_plainest_comes_first(probes: dict[str, Probe]) -> None:
    names = list(probes)
    assert names[0] == "the first token"
    assert probes["the first token"].feed.width == 1
    assert probes["within the window"].feed.width == probes["within the window"].spec.window_size
    assert (
        names.index("beyond the window") < names.index("one at a time from 2") < names.index("several rows")
    )
    assert all(name.endswith("BF16") for name in names[-2:])


def test_one_model_carries_most_probes(probes: dict[str, Probe]) -> None:
    first = probes["the first token"].checkpoint
    others = {probe.name for probe in probes.values() if probe.checkpoint != first}
    assert others
    assert all(", model " in name for name in others)


def test_names_are_unique(setting: Setting) -> None:
    names = [
        probe.name for probe in [*ladder(setting, BANK), *further_probes(setting), *kind_probes(setting)]
    ]
    # Another model may serve for both: it is then the same probe.
    assert len(names) - len(set(names)) == sum(", model " in name for name in names) - len(
        {name for name in names if ", model " in name}
    )


@pytest.mark.parametrize("missing", sorted(CAPABILITIES))
def test_nothing_is_asked_that_the_backend_cannot_do(setting: Setting, missing: str) -> None:
    less = replace(setting, capabilities=setting.capabilities - {missing})
    every = [*ladder(less, BANK), *further_probes(less), *kind_probes(less)]
    assert every
    assert all(missing not in probe.feed.requires for probe in every)
    assert all(missing not in feed.requires for _, claim in span_claims(less) for feed in claim.feeds)


def test_models_keep_a_backends_limits(setting: Setting) -> None:
    limits = {"head_dim": {"one_of": [32]}, "vocab_size": {"max": 200}}
    less = replace(setting, limits=limits)
    every = [*ladder(less, BANK), *further_probes(less), *kind_probes(less)]
    assert all(violation(probe.spec.to_dict(), limits) is None for probe in every)
    assert {probe.spec.head_dim for probe in every} == {32}  # type: ignore[attr-defined]


def test_without_bfloat16_there_is_no_such_probe(setting: Setting) -> None:
    less = replace(setting, dtypes=frozenset({"float32"}))
    assert {probe.feed.dtype for probe in ladder(less, BANK)} == {"float32"}


def test_later_draws_are_other_models(setting: Setting) -> None:
    ours, theirs = ladder(setting, BANK), ladder(replace(setting, first=1), BANK)
    assert ours[0].checkpoint != theirs[0].checkpoint
    assert [probe.name for probe in ours][:10] == [probe.name for probe in theirs][:10]


def test_kind_probes_have_one_layer_of_each_kind(setting: Setting) -> None:
    assert {probe.spec.layer_kinds for probe in kind_probes(setting)} == {("local",), ("global",)}


def test_span_claims_change_one_token_each(setting: Setting) -> None:
    for checkpoint, claim in span_claims(setting):
        assert checkpoint.spec.layer_kinds == ("local",)
        assert claim.expected == checkpoint.spec.window_span
        last = claim.feed.width - 1
        for distance, changed in enumerate(claim.changed):
            moved = [
                place
                for place, pair in enumerate(zip(claim.feed.tokens[0], changed.tokens[0], strict=True))
                if pair[0] != pair[1]
            ]
            assert moved == [last - distance]
    assert [claim.label for _, claim in span_claims(setting)] == ["prefill", "decode"]
