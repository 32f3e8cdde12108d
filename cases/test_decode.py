"""Decode: what a cache remembers must be what a whole pass would have seen."""

from conformance.case import Trial, case
from conformance.claims import Agree, Matches, Plan, Witness
from conformance.strategies import feeds


@case(
    "decode/token-by-token",
    law="a prefill followed by one token at a time equals the whole sequence and the reference",
    needs={"decode"},
    draws=lambda spec: feeds(spec, min_width=4 * spec.window_size + 2, max_width=5 * spec.window_size + 2),
)
def token_by_token(trial: Trial) -> Plan:
    feed, window = trial.drawn, trial.spec.window_size
    claims = [Matches("reference: whole", feed)]
    # Before, at and after the window; the longest decode goes round a ring of W more than twice.
    for name, prefill in (
        ("1", 1),
        ("W-1", window - 1),
        ("W", window),
        ("W+1", window + 1),
        ("2W", 2 * window),
    ):
        steps = feed.token_by_token(prefill)
        claims.append(Agree(f"whole: prefill {name}", steps, feed))
        claims.append(Matches(f"reference: prefill {name}", steps))
    return Plan(
        claims=tuple(claims),
        witnesses=(
            Witness("decode began before and after the window", 1 < window < feed.width - 1),
            Witness("decode went twice round a ring of W", feed.width - window > 2 * window),
        ),
    )
