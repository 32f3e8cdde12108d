"""Every backend against the reference: one forward pass, every position, every logit."""

from conformance.case import Trial, case
from conformance.claims import Matches, Plan, Witness
from conformance.strategies import feeds, long_feeds


@case(
    "reference/whole",
    law="a whole sequence gives the reference's logits at every position",
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size, max_width=8 * spec.window_size),
)
def whole(trial: Trial) -> Plan:
    feed = trial.drawn
    return Plan(
        claims=(Matches("reference", feed),),
        witnesses=(Witness("the window was crossed", feed.width > trial.spec.window_span + 1),),
    )


@case(
    "reference/long",
    law="positions far from 0, beyond what BF16 can count, give the reference's logits too",
    draws=lambda spec: long_feeds(spec, min_width=264, max_width=280),
)
def long(trial: Trial) -> Plan:
    feed = trial.drawn
    return Plan(
        claims=(Matches("reference", feed),),
        witnesses=(Witness("positions beyond 256 were fed", feed.width > 257),),
    )
