"""Precision: BF16 runs are judged by BF16 noise, with the cast orders that the release allows."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Matches, Plan, SameTopTokens, Witness
from conformance.strategies import feeds


@case(
    "precision/bf16",
    law="a BF16 run equals the reference in BF16, and keeps FP32's top token wherever the margin exceeds the noise",
    needs={"decode"},
    dtypes={"float32", "bfloat16"},
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size, max_width=5 * spec.window_size),
)
def bf16(trial: Trial) -> Plan:
    exact = trial.drawn
    coarse = replace(exact, dtype="bfloat16")
    steps = coarse.token_by_token(trial.spec.window_size)
    return Plan(
        claims=(
            Matches("reference: whole", coarse),
            Matches("reference: prefill W", steps),
            SameTopTokens("top tokens", coarse, exact),
        ),
        witnesses=(
            Witness("the window was crossed", exact.width > trial.spec.window_span + 1),
            Witness("BF16 was asked for", coarse.dtype == "bfloat16"),
        ),
    )
