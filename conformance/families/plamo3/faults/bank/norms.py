"""Faults of the norms and of the block around them (docs/plamo3.md §4)."""

from __future__ import annotations

from typing import Any

from conformance.families.plamo3.faults.knobs import RIGHT
from conformance.families.stepwise.bank.entry import cite, table
from conformance.families.stepwise.bank.norms import QUERY_KEY_NORMS
from conformance.families.stepwise.conditions import not_default
from conformance.faults import Fault

__all__ = ["BLOCK", "HEAD_NORMS", "NORMS"]

DOCUMENT = "docs/plamo3.md"

block = table("block", DOCUMENT)
norm = table("norm", DOCUMENT)

# Site in ids → site in sentences, and the knob of its offset.
_SITES = {
    "pre-mixer": ("pre_mixer_norm", "pre_mixer_offset"),
    "post-mixer": ("post_mixer_norm", "post_mixer_offset"),
    "pre-mlp": ("pre_mlp_norm", "pre_mlp_offset"),
    "post-mlp": ("post_mlp_norm", "post_mlp_offset"),
    "q": ("q_norm", "q_offset"),
    "k": ("k_norm", "k_offset"),
    "final": ("the last norm", "final_offset"),
}
_KNOBS = [knob for _, knob in _SITES.values()]


def _changes(knobs: list[str], value: Any) -> dict[str, Any]:
    return dict.fromkeys(knobs, value)


def _of_sites() -> list[Fault]:
    faults: list[Fault] = []
    for site, (name, knob) in _SITES.items():
        right = getattr(RIGHT, knob)
        faults.append(
            norm(
                f"offset-forgotten-{site}",
                4,
                "offset forgotten",
                f"The gain of {name} is its stored weight alone, without the offset {right:.4g}.",
                **_changes([knob], 0.0),
            )
        )
        faults.append(
            norm(
                f"offset-twice-{site}",
                4,
                "offset added twice",
                f"The offset {right:.4g} of {name} is added twice, at load and again when it is used.",
                **_changes([knob], 2 * right),
            )
        )
    return faults


NORMS = (
    *_of_sites(),
    norm(
        "offset-forgotten-everywhere",
        4,
        "offset forgotten",
        "All norms take the stored weight for the gain.",
        **_changes(_KNOBS, 0.0),
    ),
    norm(
        "offset-forgotten-heads",
        4,
        "offset forgotten",
        "q_norm and k_norm take the stored weight for the gain.",
        q_offset=0.0,
        k_offset=0.0,
    ),
    norm(
        "offset-forgotten-posts",
        4,
        "offset forgotten",
        "Both post-norms take the stored weight for the gain.",
        post_mixer_offset=0.0,
        post_mlp_offset=0.0,
    ),
    norm(
        "offset-one-everywhere",
        4,
        "one offset for all sites",
        "Every norm adds 1, the post-norms too.",
        post_mixer_offset=1.0,
        post_mlp_offset=1.0,
    ),
    norm(
        "offset-one-post-mixer",
        4,
        "one offset for all sites",
        "post_mixer_norm adds 1 instead of 1/5.",
        post_mixer_offset=1.0,
    ),
    norm(
        "offset-one-post-mlp",
        4,
        "one offset for all sites",
        "post_mlp_norm adds 1 instead of 5^-1.5.",
        post_mlp_offset=1.0,
    ),
    norm(
        "offset-fifth-both-posts",
        4,
        "one offset for all sites",
        "Both post-norms add 1/5.",
        post_mlp_offset=RIGHT.post_mixer_offset,
    ),
    norm(
        "offset-posts-exchanged",
        4,
        "offsets exchanged",
        "post_mixer_norm has the offset of post_mlp_norm, and the reverse.",
        post_mixer_offset=RIGHT.post_mlp_offset,
        post_mlp_offset=RIGHT.post_mixer_offset,
    ),
    norm(
        "norm-mean-subtracted",
        4,
        "mean subtracted",
        "The norms over D subtract the mean first, as LayerNorm does.",
        centred_residual=True,
    ),
    norm(
        "head-norm-mean-subtracted",
        4,
        "mean subtracted",
        "q_norm and k_norm subtract the mean first, as LayerNorm does.",
        centred_heads=True,
    ),
    norm(
        "eps-1e-5",
        4,
        "eps not as configured",
        "Every norm has an eps of 1e-5, whatever is configured.",
        not_default("rms_norm_eps", 1e-5),
        residual_eps=1e-5,
        head_eps=1e-5,
    ),
    norm(
        "eps-1e-6",
        4,
        "eps not as configured",
        "Every norm has an eps of 1e-6, whatever is configured.",
        not_default("rms_norm_eps", 1e-6),
        residual_eps=1e-6,
        head_eps=1e-6,
    ),
    norm(
        "eps-missing",
        4,
        "eps not as configured",
        "No norm adds eps.",
        residual_eps=0.0,
        head_eps=0.0,
    ),
    norm(
        "head-eps-1e-5",
        4,
        "eps not as configured",
        "q_norm and k_norm have an eps of 1e-5, whatever is configured.",
        not_default("rms_norm_eps", 1e-5),
        head_eps=1e-5,
    ),
    norm(
        "head-eps-missing",
        4,
        "eps not as configured",
        "q_norm and k_norm add no eps.",
        head_eps=0.0,
    ),
    norm(
        "eps-outside-root",
        4,
        "eps outside the root",
        "Norms divide by sqrt(mean(x²)) + eps.",
        eps_place="outside the root",
    ),
)


HEAD_NORMS = (
    *cite(QUERY_KEY_NORMS, DOCUMENT, 4),
    norm(
        "value-normalised",
        4,
        "norm where there is none",
        "V is normalised per head too, without a gain.",
        v_norm=True,
    ),
)

BLOCK = (
    block(
        "post-mixer-norm-after-add",
        4,
        "post-norm after the residual add",
        "post_mixer_norm is applied to the sum of residual and attention.",
        post_mixer_norm="after-add",
    ),
    block(
        "post-mlp-norm-after-add",
        4,
        "post-norm after the residual add",
        "post_mlp_norm is applied to the sum of residual and MLP.",
        post_mlp_norm="after-add",
    ),
    block(
        "post-norms-after-add",
        4,
        "post-norm after the residual add",
        "Both post-norms are applied after the residual is added.",
        post_mixer_norm="after-add",
        post_mlp_norm="after-add",
    ),
    block(
        "post-mixer-norm-missing",
        4,
        "norm left out",
        "Attention is added to the residual without post_mixer_norm.",
        post_mixer_norm="missing",
    ),
    block(
        "post-mlp-norm-missing",
        4,
        "norm left out",
        "The MLP is added to the residual without post_mlp_norm.",
        post_mlp_norm="missing",
    ),
    block(
        "post-norms-missing",
        4,
        "norm left out",
        "Neither post-norm is applied, as in a block with pre-norms alone.",
        post_mixer_norm="missing",
        post_mlp_norm="missing",
    ),
    block(
        "final-norm-missing",
        4,
        "norm left out",
        "The head takes the residual without the last norm.",
        final_norm=False,
    ),
    block(
        "block-parallel",
        4,
        "block in another shape",
        "The MLP takes the block's input instead of the residual after attention.",
        block="parallel",
    ),
)
