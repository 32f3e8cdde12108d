"""Split prefill: the same tokens in chunks, each on top of what the cache holds."""

from hypothesis import strategies as st

from conformance.case import Trial, case
from conformance.claims import Agree, Claim, Matches, Plan, Witness
from conformance.families.base import Spec
from conformance.feeds import Feed
from conformance.strategies import feeds, splits


@st.composite
def _feed_and_split(draw: st.DrawFn, spec: Spec) -> tuple[Feed, tuple[int, ...]]:
    feed = draw(feeds(spec, min_width=4 * spec.window_size + 2, max_width=5 * spec.window_size + 2))
    return feed, draw(splits(feed.width))


@case(
    "prefill/split",
    law="a prefill in chunks equals the prefill in one piece and the reference",
    needs={"chunked", "decode"},
    draws=_feed_and_split,
)
def split(trial: Trial) -> Plan:
    feed, drawn = trial.drawn
    window = trial.spec.window_size
    sizes = {
        "1": 1,
        "W-1": window - 1,
        "W": window,
        "W+1": window + 1,
        "2W": 2 * window,
        "2W+1": 2 * window + 1,
    }
    chunkings = {f"chunks of {name}": [size] * (feed.width // size) for name, size in sizes.items()}
    chunkings |= {"3-6-3": [3, 6, 3], "drawn": list(drawn)}
    claims: list[Claim] = []
    for name, chunks in chunkings.items():
        cut = feed.split(chunks)
        claims.append(Agree(f"whole: {name}", cut, feed))
        claims.append(Matches(f"reference: {name}", cut))
    return Plan(
        claims=tuple(claims),
        witnesses=(
            Witness("the sequence was split", all(len(feed.split(c).chunks) > 1 for c in chunkings.values())),
            Witness("several tokens came on top of a full window", feed.width > 2 * window + 1),
        ),
    )
