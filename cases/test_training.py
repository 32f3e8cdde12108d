"""Training mode: without dropout, train() and eval() are the same function."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.claims import Agree, Claim, Matches, Plan, Witness
from conformance.strategies import feeds


@case(
    "training/mask",
    law="training mode equals evaluation mode and the reference at every length around the window",
    needs={"training"},
    draws=lambda spec: feeds(spec, min_width=spec.window_size + 3, max_width=spec.window_size + 3),
)
def mask(trial: Trial) -> Plan:
    window = trial.spec.window_size
    claims: list[Claim] = []
    lengths = range(1, min(window + 3, trial.drawn.width) + 1)
    for length in lengths:
        name = "T = W" if length == window else f"T = W{length - window:+d}"
        feed = trial.drawn.first(length)
        for mode in ("training", "training-nograd"):
            trained = replace(feed, mode=mode)
            claims.append(Agree(f"evaluation: {mode}, {name}", trained, feed))
            claims.append(Matches(f"reference: {mode}, {name}", trained))
    return Plan(
        claims=tuple(claims),
        witnesses=(Witness("lengths from 1 to beyond W + 1 were trained", max(lengths) > window + 1),),
    )
