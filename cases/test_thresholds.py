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


@case(
    "thresholds/cache",
    law="a cache that grows past the powers of two, in chunks or one token at a time, loses nothing",
    needs={"chunked", "decode"},
    draws=lambda spec: feeds(spec, min_width=66, max_width=68),
)
def cache(trial: Trial) -> Plan:
    feed = trial.drawn
    # One token at a time from just below a block's end; chunks that end at, before and beyond it.
    cuts = {"prefill 31": feed.token_by_token(min(31, feed.width))}
    for size in (15, 16, 33):
        cuts[f"chunks of {size}"] = feed.split([size] * (feed.width // size))
    return Plan(
        claims=tuple(Matches(f"reference: {name}", cut) for name, cut in cuts.items()),
        witnesses=(Witness("the cache grew beyond 64 tokens in every way", feed.width > 65),),
    )
