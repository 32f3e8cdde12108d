"""Loading: every way to write the same model down gives the same model."""

from conformance.case import Trial, case
from conformance.claims import Matches, Plan, Witness
from conformance.families import family_of
from conformance.strategies import feeds


@case(
    "load/matrix",
    law="head tied or not, odd vocabularies, shards, stored dtypes and left-out keys load as the same model",
    draws=lambda spec: feeds(spec, min_width=3 * spec.window_size, max_width=3 * spec.window_size),
    variants=lambda spec: family_of(spec.family).layouts(spec),
)
def matrix(trial: Trial) -> Plan:
    feed = trial.drawn
    return Plan(
        claims=(Matches(f"reference: {trial.variant}", feed),),
        witnesses=(Witness("the window was crossed", feed.width > trial.spec.window_span),),
    )
