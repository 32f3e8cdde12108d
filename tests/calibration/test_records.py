"""What is kept of a study: every ratio is counted, large ones one by one, and files give it all back."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.calibration.records import (
    BINS_PER_OCTAVE,
    INEXACT,
    NOISE,
    TAIL,
    Large,
    Spread,
    Total,
    gather,
    read_records,
    spread_of,
    write_records,
)
from tests.calibration.samples import EFFECTS, FACTS, group, level, records, sample

RATIOS = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


class TestSpread:
    @settings(deadline=None)
    @given(RATIOS)
    def test_every_ratio_is_counted_once(self, ratios: list[float]) -> None:
        spread = spread_of(np.array(ratios))
        assert spread.positions == len(ratios)
        assert spread.exact + sum(spread.bins.values()) == len(ratios)
        assert spread.exact == ratios.count(0.0)

    @settings(deadline=None)
    @given(RATIOS, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
    def test_a_quantile_is_the_upper_edge_of_its_bin(self, ratios: list[float], share: float) -> None:
        right = sorted(ratios)[max(0, int(np.ceil(share * len(ratios))) - 1)]
        found = spread_of(np.array(ratios)).quantile(share)
        assert right <= found * (1 + 1e-12)
        assert found <= right * 2 ** (1 / BINS_PER_OCTAVE) * (1 + 1e-12)

    @settings(deadline=None)
    @given(RATIOS, RATIOS)
    def test_a_sum_is_the_spread_of_both(self, one: list[float], other: list[float]) -> None:
        assert spread_of(np.array(one)) + spread_of(np.array(other)) == spread_of(np.array([*one, *other]))

    def test_bins_begin_at_powers_of_two(self) -> None:
        assert spread_of(np.array([1.0, 8.0, 7.999, 0.0])).bins == {0: 1, 95: 1, 96: 1}

    def test_the_middle_of_a_bin_stands_for_it(self) -> None:
        assert Spread(3, 0, {0: 1, 32: 2}).middles() == {2 ** (1 / 64): 1, 2 ** (1 + 1 / 64): 2}

    def test_beyond_counts_from_a_bin_upwards(self) -> None:
        assert Spread(6, 1, {0: 2, 32: 2, 96: 1}).beyond(32) == 3

    @pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.5])
    def test_what_is_no_ratio_is_refused(self, wrong: float) -> None:
        with pytest.raises(ValueError, match="should be 0 or more"):
            spread_of(np.array([1.0, wrong]))


class TestGather:
    def test_runs_are_totalled_with_their_worst(self) -> None:
        found = gather(FACTS, [sample(group(), 0.5, 1.25), sample(group(), 0.75, model=2)], [], [])
        assert list(found.totals) == [Total(1, 1, 2, 1.25), Total(1, 2, 1, 0.75)]
        assert found.groups[group()].positions == 3

    def test_large_ratios_are_kept_with_their_place(self) -> None:
        found = gather(FACTS, [sample(group(), TAIL, 2.5, 0.5, 2.25)], [], [])
        assert list(found.large) == [Large(1, 1, 0, 1, 2.5), Large(1, 1, 0, 3, 2.25)]

    def test_of_engines_that_conform_alone(self) -> None:
        some = [sample(group(kind=NOISE), 9.0), sample(group(kind=INEXACT), 9.0)]
        found = gather(FACTS, some, [], [])
        assert not found.large
        assert [total.worst for total in found.totals] == [9.0, 9.0]

    def test_the_order_of_samples_does_not_matter(self) -> None:
        some = [sample(group("b"), 1.0), sample(group("a"), 2.0, model=2), sample(group("a"), 3.0)]
        assert gather(FACTS, some, [], []) == gather(FACTS, some[::-1], [], [])

    @pytest.mark.parametrize("ratio", [8.0000001, 2.123456, 63.99999, 2.00001])
    def test_what_was_beyond_a_bound_stays_beyond_it(self, ratio: float) -> None:
        (kept,) = gather(FACTS, [sample(group(), ratio)], [], []).large
        assert ratio <= kept.ratio <= ratio * 1.0001

    def test_numbers_are_cut_to_five_digits(self) -> None:
        found = gather(FACTS, [], EFFECTS, [level("float32")])
        assert found.levels[0].noise == 3.0518e-05


class TestFiles:
    def test_everything_comes_back(self, tmp_path: Path) -> None:
        write_records(tmp_path, records())
        assert read_records(tmp_path) == records()

    def test_what_comes_back_writes_the_same_files(self, tmp_path: Path) -> None:
        write_records(tmp_path / "one", records())
        write_records(tmp_path / "two", read_records(tmp_path / "one"))
        files = sorted(path.name for path in (tmp_path / "one").iterdir())
        assert files == ["effect.csv", "groups.csv", "large.csv", "level.csv", "study.json", "total.csv"]
        for name in files:
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

    def test_they_are_tables_with_a_header(self, tmp_path: Path) -> None:
        write_records(tmp_path, records())
        with (tmp_path / "effect.csv").open(newline="") as stream:
            first = next(csv.DictReader(stream))
        assert (first["fault"], first["ratio"], first["positions"]) == ("loud", "90000.0", "12")

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        write_records(tmp_path, records())
        (tmp_path / "level.csv").unlink()
        with pytest.raises(FileNotFoundError, match=r"level\.csv"):
            read_records(tmp_path)
