"""Precision: BF16 runs are judged by BF16 noise, with the cast orders that the release allows."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Matches, Plan, SameTopTokens, Witness
from conformance.strategies import feeds


@case(
    "precision/bf16",
    law="a BF16 run equals the reference in BF16 and keeps FP32's top tokens but for near ties",
    dtypes={"float32", "bfloat16"},
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size, max_width=5 * spec.window_size),
)
def bf16(trial: Trial) -> Plan:
    exact = trial.drawn
    coarse = replace(exact, dtype="bfloat16")
    return Plan(
        claims=(Matches("reference", coarse), SameTopTokens("top tokens", coarse, exact)),
        witnesses=(
            Witness("the window was crossed", exact.width > trial.spec.window_span + 1),
            Witness("FP32 stood beside BF16", (exact.dtype, coarse.dtype) == ("float32", "bfloat16")),
        ),
    )


@case(
    "precision/bf16-decode",
    law="a BF16 run over a cache equals the reference in BF16",
    needs={"decode"},
    dtypes={"bfloat16"},
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size, max_width=5 * spec.window_size),
)
def bf16_decode(trial: Trial) -> Plan:
    steps = replace(trial.drawn, dtype="bfloat16").token_by_token(trial.spec.window_size)
    return Plan(
        claims=(Matches("reference: prefill W", steps),),
        witnesses=(Witness("decode went round a ring of W", steps.width > 2 * trial.spec.window_size),),
    )
