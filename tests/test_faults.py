from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance import faults
from conformance.backends.reference.adapter import ReferenceAdapter
from conformance.backends.reference.faulty import FaultyAdapter
from conformance.checkpoints.store import Checkpoint
from conformance.errors import BadInput, Unsupported
from conformance.families.base import Spec
from conformance.faults import Condition, Fault, by_kind, clash, combine, crops, faults_of, find
from conformance.feeds import CAPABILITIES, Crop, Feed, Forward, Reorder, Reset, Step

TOKENS = ((3, 1, 4, 1, 5, 9, 2, 6), (5, 35, 89, 79, 32, 38, 46, 26))


def feed_of(*steps: Step, rows: int = 1, **changes: object) -> Feed:
    """Eight columns; without steps, whole."""
    return replace(Feed(tokens=TOKENS[:rows], steps=steps or (Forward(8),)), **changes)  # type: ignore[arg-type]


def fault_of(id: str, kind: str = "kind", where: tuple[Condition, ...] = (), **changes: object) -> Fault:
    return Fault(
        id=id,
        what="It does something else.",
        part="norm",
        kind=kind,
        section="docs/plamo3.md §4",
        changes=changes,
        where=where,
    )


ONE = fault_of("norm-offset-forgotten", offset=0.0)
TWO = fault_of("norm-offset-twice", offset=2.0)
THREE = fault_of("rope-missing", kind="other", rope=False)
BANK = (ONE, TWO, THREE)


class TestLookup:
    def test_a_fault_is_found_by_its_id(self) -> None:
        assert find(BANK, "rope-missing") is THREE

    def test_the_nearest_name_is_offered(self) -> None:
        with pytest.raises(BadInput) as raised:
            find(BANK, "rope-mising")
        assert str(raised.value) == (
            "fault = 'rope-mising', but should be one of the 3 in the bank; did you mean rope-missing?"
        )

    def test_nothing_is_offered_where_nothing_is_near(self) -> None:
        with pytest.raises(BadInput) as raised:
            find(BANK, "zzz")
        assert str(raised.value) == "fault = 'zzz', but should be one of the 3 in the bank"

    def test_kinds_keep_the_order_of_the_bank(self) -> None:
        assert list(by_kind(BANK).items()) == [("kind", (ONE, TWO)), ("other", (THREE,))]

    def test_a_family_has_a_bank(self) -> None:
        assert len(faults_of("plamo3").FAULTS) >= 60

    def test_an_unknown_family_has_none(self) -> None:
        with pytest.raises(BadInput, match="model_type = 'plamo9'"):
            faults_of("plamo9")

    def test_reading_a_bank_imports_neither_torch_nor_hypothesis(self) -> None:
        code = (
            "import sys; from conformance.faults import faults_of; faults_of('plamo3').FAULTS;"
            "assert not {'torch', 'hypothesis'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


class TestComposition:
    def test_changes_of_several_faults_are_joined(self) -> None:
        assert combine([ONE, THREE]) == combine([THREE, ONE]) == {"offset": 0.0, "rope": False}

    def test_no_faults_change_nothing(self) -> None:
        assert combine([]) == {}

    def test_faults_that_set_one_knob_differently_clash(self) -> None:
        assert clash(ONE, TWO) == ("offset",)
        assert clash(ONE, THREE) == clash(ONE, ONE) == ()

    def test_clashing_faults_do_not_combine(self) -> None:
        with pytest.raises(BadInput) as raised:
            combine([ONE, THREE, TWO])
        assert (
            str(raised.value) == "faults = norm-offset-forgotten and norm-offset-twice, but both set offset"
        )


WHERE: list[tuple[str, Feed, Feed]] = [
    ("DECODE", feed_of(Forward(7), Forward(1)), feed_of(Forward(4), Forward(4))),
    ("DECODE", feed_of(Forward(7), Forward(1)), feed_of(Forward(7), Reset(), Forward(1))),
    ("CHUNKED", feed_of(Forward(4), Forward(4)), feed_of(Forward(7), Forward(1))),
    ("CACHED", feed_of(Forward(4), Forward(4)), feed_of()),
    ("CROP", feed_of(Forward(4), Crop(0), Forward(4)), feed_of(Forward(4), Crop(4), Forward(4))),
    ("CROP", feed_of(Forward(4), Crop(3), Forward(4)), feed_of(Forward(8), Crop(3))),
    ("CROP_INSIDE", feed_of(Forward(4), Crop(3), Forward(4)), feed_of(Forward(4), Crop(0), Forward(4))),
    ("CROP_TO_ZERO", feed_of(Forward(4), Crop(0), Forward(4)), feed_of(Forward(4), Crop(3), Forward(4))),
    ("CROP_PAST_END", feed_of(Forward(4), Crop(5), Forward(4)), feed_of(Forward(4), Crop(4), Forward(4))),
    ("RESET", feed_of(Forward(4), Reset(), Forward(4)), feed_of(Reset(), Forward(8))),
    (
        "REORDER",
        feed_of(Forward(4), Reorder((1, 0)), Forward(4), rows=2),
        feed_of(Forward(8), Reorder((1, 0)), rows=2),
    ),
    ("TRAINING", feed_of(mode="training"), feed_of()),
    ("BATCH", feed_of(rows=2), feed_of()),
    ("PADDED", feed_of(rows=2, lengths=(8, 5), padding="right"), feed_of(rows=2)),
    ("PADDED", feed_of(rows=2, lengths=(8, 5), padding="left"), feed_of(lengths=(8,), padding="left")),
    (
        "PADDING_AHEAD",
        feed_of(rows=2, lengths=(8, 5), padding="left"),
        feed_of(rows=2, lengths=(8, 5), padding="right"),
    ),
    (
        "PADDING_AHEAD",
        feed_of(Forward(7), Reorder((1, 0)), Forward(1), rows=2, lengths=(8, 5), padding="right"),
        feed_of(Forward(7), Forward(1), rows=2, lengths=(8, 5), padding="right"),
    ),
    ("POSITIONS", feed_of(positions=(tuple(range(8)),)), feed_of()),
    ("POSITION_JUMPS", feed_of(positions=((0, 1, 2, 3, 5, 6, 7, 8),)), feed_of(positions=(tuple(range(8)),))),
    ("SEGMENTS", feed_of(segments=((0,) * 8,)), feed_of()),
    ("MASKED", feed_of(segments=((0,) * 8,)), feed_of(rows=2)),
    ("MASKED", feed_of(rows=2, lengths=(8, 5), padding="right"), feed_of(positions=(tuple(range(8)),))),
    ("SEVERAL", feed_of(Forward(1), Forward(7)), feed_of(*[Forward(1)] * 8)),
    (
        "UNLIKE_ROWS",
        feed_of(rows=2, lengths=(5, 8), padding="left"),
        feed_of(rows=2, lengths=(8, 5), padding="left"),
    ),
    (
        "UNLIKE_ROWS",
        feed_of(rows=2, positions=(tuple(range(8)), tuple(range(1, 9)))),
        feed_of(rows=2, positions=(tuple(range(8)),) * 2),
    ),
    (
        "UNLIKE_ROWS",
        feed_of(Forward(6), Reorder((1, 0)), Forward(2), rows=2, lengths=(8, 5), padding="left"),
        feed_of(positions=(tuple(range(8)),)),
    ),
    ("BFLOAT16", feed_of(dtype="bfloat16"), feed_of(dtype="float64")),
    ("FLOAT32", feed_of(dtype="float64"), feed_of(dtype="bfloat16")),
]


class TestConditions:
    @pytest.mark.parametrize(("name", "there", "elsewhere"), WHERE)
    def test_a_condition_tells_feeds_apart(self, spec: Spec, name: str, there: Feed, elsewhere: Feed) -> None:
        condition = getattr(faults, name)
        assert condition.holds(spec, there)
        assert not condition.holds(spec, elsewhere)

    def test_every_condition_is_tried(self) -> None:
        conditions = {name for name, value in vars(faults).items() if isinstance(value, Condition)}
        assert conditions == {name for name, _, _ in WHERE}

    def test_crops_come_with_what_the_cache_held(self) -> None:
        steps = (Forward(5), Crop(2), Forward(2), Crop(9), Forward(1), Crop(1))
        assert crops(feed_of(*steps)) == [(2, 5), (9, 4)]

    def test_a_fault_applies_where_all_its_conditions_hold(self, spec: Spec) -> None:
        fault = fault_of("x", where=(faults.DECODE, faults.BATCH))
        decode = (Forward(7), Forward(1))
        assert fault.applies(spec, feed_of(*decode, rows=2))
        assert not fault.applies(spec, feed_of(*decode))
        assert not fault.applies(spec, feed_of(rows=2))

    def test_a_fault_that_shows_nothing_applies_nowhere(self, spec: Spec) -> None:
        assert not replace(ONE, reveals=faults.NOTHING, why="it is the same").applies(spec, feed_of())

    def test_where_it_shows_is_said_in_a_few_words(self) -> None:
        assert fault_of("x", where=(faults.DECODE, faults.BATCH)).shows == "decode, batch"
        assert ONE.shows == "any run"


@pytest.fixture(scope="module")
def faulty(checkpoint: Checkpoint) -> Callable[..., np.ndarray]:
    """Ids of faults, a feed, and an order → logits."""

    def run(ids: list[str], feed: Feed, order: str = "relabel:0") -> np.ndarray:
        adapter = FaultyAdapter({"faults": ids})
        return adapter.run_in_order(adapter.prepare(checkpoint.path), feed, order)

    return run


class TestFaultyAdapter:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
    def test_without_faults_it_is_the_reference(
        self, faulty: Callable[..., np.ndarray], checkpoint: Checkpoint, dtype: str
    ) -> None:
        reference = ReferenceAdapter({})
        feed = feed_of(rows=2, dtype=dtype)
        want = reference.run(reference.prepare(checkpoint.path), feed)
        got = faulty([], feed)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)

    def test_it_can_do_all_that_the_reference_can(self) -> None:
        assert FaultyAdapter({}).capabilities == frozenset(CAPABILITIES)
        assert FaultyAdapter({}).dtypes == ("float32", "bfloat16", "float64")

    def test_faults_compose_in_any_order(self, faulty: Callable[..., np.ndarray]) -> None:
        ids = ["window-one-long", "rope-interleaved", "activation-relu"]
        feed = feed_of(dtype="float64")
        np.testing.assert_array_equal(faulty(ids, feed), faulty(ids[::-1], feed))
        assert np.abs(faulty(ids, feed) - faulty(ids[:2], feed)).max() > 0.1

    @pytest.mark.parametrize(
        "id", ["gate-up-interleaved", "qkv-interleaved", "qkv-value-before-key", "gqa-tiled"]
    )
    def test_relabelling_is_a_symmetry_of_the_faulty_model_too(
        self, faulty: Callable[..., np.ndarray], id: str
    ) -> None:
        feed = feed_of(dtype="float64")
        np.testing.assert_allclose(faulty([id], feed, "relabel:3"), faulty([id], feed), rtol=0, atol=1e-11)
        assert np.abs(faulty([id], feed) - faulty([], feed)).max() > 0.1

    def test_orders_that_it_does_not_have_are_refused(self, faulty: Callable[..., np.ndarray]) -> None:
        with pytest.raises(Unsupported, match=re.escape("has no evaluation order called casts:wide")):
            faulty([], feed_of(), "casts:wide")

    def test_unknown_faults_are_named(self, faulty: Callable[..., np.ndarray]) -> None:
        with pytest.raises(BadInput, match="did you mean rope-missing"):
            faulty(["rope-mising"], feed_of())

    def test_its_faults_are_part_of_its_provenance(self) -> None:
        numerics = FaultyAdapter({"faults": ["rope-missing"]}).numerics()
        assert json.loads(json.dumps(numerics))["faults"] == ["rope-missing"]
