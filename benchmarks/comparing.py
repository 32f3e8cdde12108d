"""Measure how long one comparison takes: 10,000 rows of 128 logits, graded.

    python benchmarks/comparing.py [--rows 10000] [--vocabulary 128] [--repeats 5]

Prints the fastest and the median of the repeats, and exits with 1 where a median is over a second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import numpy as np

from conformance.compare.verdict import ROUNDING, compare

LONGEST = 1.0  # seconds


def seconds_of(rows: int, vocabulary: int, error: float) -> float:
    """One comparison of [1, rows, vocabulary] logits that are off by up to `error` times the noise."""
    draws = np.random.default_rng(1)
    want = draws.normal(0, 8, (1, rows, vocabulary))
    noise = np.full((1, rows), 2e-5)
    got = (want + error * noise[..., None] * draws.uniform(-1, 1, want.shape)).astype(np.float32)
    started = time.perf_counter()
    verdict = compare(got, want, noise, np.ones((1, rows), bool), "float32")
    taken = time.perf_counter() - started
    assert verdict.compared == rows
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--vocabulary", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    # A failing comparison says more than a passing one, so both are timed.
    slow = False
    for name, error in (("rounding", 1.0), ("divergent", 100 * ROUNDING)):
        runs = [seconds_of(given.rows, given.vocabulary, error) for _ in range(given.repeats)]
        slow |= statistics.median(runs) > LONGEST
        print(f"{name:>9}: fastest {min(runs):.3f} s, median {statistics.median(runs):.3f} s")
    sys.exit(slow)


if __name__ == "__main__":
    main()
