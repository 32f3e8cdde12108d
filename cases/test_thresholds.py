"""Thresholds: kernels switch at sizes; results must not."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Matches, Plan, Witness
from conformance.strategies import feeds

LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
BATCHES = tuple(range(1, 10))


@case(
    "thresholds/length",
    law="every length around the powers of two gives the reference's logits",
    draws=lambda spec: feeds(spec, min_width=max(LENGTHS), max_width=max(LENGTHS)),
)
def length(trial: Trial) -> Plan:
    claims = tuple(
        Matches(f"reference: T = {n}", trial.drawn.first(n)) for n in LENGTHS if n <= trial.drawn.width
    )
    return Plan(
        claims, (Witness("lengths on both sides of 8, 16, 32 and 64 were fed", len(claims) == len(LENGTHS)),)
    )


@case(
    "thresholds/batch",
    law="every batch size from 1 to 9 gives the reference's logits",
    needs={"batch"},
    draws=lambda spec: feeds(spec, min_width=9, max_width=11, batch=max(BATCHES)),
)
def batch(trial: Trial) -> Plan:
    claims = tuple(
        Matches(f"reference: B = {n}", replace(trial.drawn, tokens=trial.drawn.tokens[:n]))
        for n in BATCHES
        if n <= trial.drawn.batch
    )
    return Plan(claims, (Witness("batches from 1 to 9 were fed", len(claims) == len(BATCHES)),))
