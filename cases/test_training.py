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


@case(
    "training/padded",
    law="training mode goes by the padding mask as evaluation mode does",
    needs={"training", "batch", "left-padding"},
    draws=lambda spec: feeds(spec, min_width=spec.window_size + 1, max_width=3 * spec.window_size, batch=2),
)
def padded(trial: Trial) -> Plan:
    drawn = trial.drawn
    feed = replace(drawn, lengths=(max(1, drawn.width - 2), drawn.width), padding="left")
    claims = tuple(
        Matches(f"reference: {mode}", replace(feed, mode=mode)) for mode in ("training", "training-nograd")
    )
    return Plan(claims, (Witness("a row was padded", min(feed.lengths or ()) < feed.width),))


@case(
    "training/packed",
    law="training mode goes by the segment mask as evaluation mode does",
    needs={"training", "positions", "segments"},
    draws=lambda spec: feeds(spec, min_width=spec.window_size + 1, max_width=3 * spec.window_size),
)
def packed(trial: Trial) -> Plan:
    feed = trial.drawn
    cut = feed.width // 2
    rest = feed.width - cut
    together = replace(feed, positions=((*range(cut), *range(rest)),), segments=((0,) * cut + (1,) * rest,))
    claims = tuple(
        Matches(f"reference: {mode}", replace(together, mode=mode))
        for mode in ("training", "training-nograd")
    )
    return Plan(claims, (Witness("two rows were packed", min(cut, rest) > 0),))
