"""Faults of the norms of query and key heads, which every family has."""

from __future__ import annotations

from typing import Any

from conformance.families.stepwise.bank.entry import shared_table
from conformance.faults import Fault

__all__ = ["QUERY_KEY_NORMS"]

norm = shared_table("norm")


def _changes(knobs: list[str], value: Any) -> dict[str, Any]:
    return dict.fromkeys(knobs, value)


def _of_heads() -> list[Fault]:
    rules = (
        ("missing", "missing", "head norm missing", "{} missing"),
        ("after-rope", "after-rope", "head norm after RoPE", "{} applied after RoPE instead of before it"),
        ("all-heads", "all-heads", "head norm over all heads", "{} computed over all heads at once"),
    )
    names = {"q": "q_norm is", "k": "k_norm is", "qk": "q_norm and k_norm are"}
    return [
        norm(
            f"{heads}-norm-{suffix}",
            kind,
            f"{sentence.format(name)}.",
            **_changes([f"{head}_norm" for head in heads], rule),
        )
        for suffix, rule, kind, sentence in rules
        for heads, name in names.items()
    ]


QUERY_KEY_NORMS = (
    *_of_heads(),
    norm(
        "head-gains-exchanged",
        "norm weights exchanged",
        "q_norm's weight is used on K, and k_norm's on Q.",
        head_gains="exchanged",
    ),
)
