"""Faults of precision that every family has: what is rounded."""

from __future__ import annotations

from conformance.families.stepwise.bank.entry import shared_table
from conformance.faults import FLOAT32

__all__ = ["CACHE_WIDTH", "MATRIX_INPUTS"]

precision = shared_table("precision")

MATRIX_INPUTS = (
    precision(
        "matmul-tf32",
        "matrix inputs rounded",
        "Activations are rounded to TF32 before every matrix product.",
        FLOAT32,
        rounds=True,
        matmul="tf32",
    ),
    precision(
        "matmul-bfloat16",
        "matrix inputs rounded",
        "Activations are rounded to BF16 before every matrix product, whatever dtype was asked for.",
        FLOAT32,
        rounds=True,
        matmul="bfloat16",
    ),
    precision(
        "matmul-float16",
        "matrix inputs rounded",
        "Activations are rounded to FP16 before every matrix product, whatever dtype was asked for.",
        FLOAT32,
        rounds=True,
        matmul="float16",
    ),
)

CACHE_WIDTH = (
    precision(
        "cache-bfloat16",
        "cache narrower than the run",
        "K and V are kept in BF16, whatever dtype was asked for.",
        FLOAT32,
        rounds=True,
        cache_dtype="bfloat16",
    ),
    precision(
        "cache-float16",
        "cache narrower than the run",
        "K and V are kept in FP16, whatever dtype was asked for.",
        FLOAT32,
        rounds=True,
        cache_dtype="float16",
    ),
    precision(
        "cache-float8",
        "cache narrower than the run",
        "K and V are kept in FP8, whatever dtype was asked for.",
        rounds=True,
        cache_dtype="float8",
    ),
)
