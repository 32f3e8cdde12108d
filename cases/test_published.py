"""Published figures of the releases' own code, on the small models that they were published for."""

from dataclasses import replace

from conformance.case import Trial, case
from conformance.checkpoints.layout import Layout
from conformance.claims import Agree, Claim, Differ, Plan, Witness
from conformance.families import family_of
from conformance.families.base import Published, Variant
from conformance.strategies import feeds

# How far from a published rounding error ours may be: other weights, tokens and library versions.
_MARGIN = 10.0


def _small(family: str, release: str) -> tuple[Variant, ...]:
    published = family_of(family).published.get(release)
    return () if published is None else (Variant("published", published.spec, Layout(recipe="fresh")),)


def _published(trial: Trial) -> Published:
    return family_of(trial.spec.family).published[trial.release]


@case(
    "published/cache",
    law="decode and split prefill differ from the whole sequence as little as was published",
    needs={"decode", "chunked"},
    draws=lambda spec: feeds(spec, min_width=12, max_width=12),
    fixed=_small,
    own_code=True,
)
def cache(trial: Trial) -> Plan:
    feed, published = trial.drawn, _published(trial)
    split = feed.split(published.split)
    return Plan(
        claims=(
            Differ("token by token", feed.token_by_token(), feed, most=_MARGIN * published.decode_error),
            Differ("split", split, feed, most=_MARGIN * published.split_error),
        ),
        witnesses=(Witness("the published length was fed", feed.width == published.width),),
    )


@case(
    "published/training",
    law="training mode differs from evaluation mode at the published length and nowhere else",
    needs={"training"},
    draws=lambda spec: feeds(spec, min_width=12, max_width=12),
    fixed=_small,
    own_code=True,
)
def training(trial: Trial) -> Plan:
    published = _published(trial)
    claims: list[Claim] = []
    for length, differs in published.training.items():
        if length > trial.drawn.width:
            continue
        feed = trial.drawn.first(length)
        trained = replace(feed, mode="training-nograd")
        if differs:
            claims.append(Differ(f"T = {length} differs", trained, feed, least=published.training_difference))
        else:
            claims.append(Agree(f"T = {length} is the same", trained, feed))
    return Plan(
        claims=tuple(claims),
        witnesses=(Witness("every published length was trained", len(claims) == len(published.training)),),
    )
