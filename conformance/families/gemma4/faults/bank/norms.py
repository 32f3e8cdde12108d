"""Faults of the norms, the block around them and its scalar (docs/gemma4.md §2, §3)."""

from __future__ import annotations

from typing import Any

from conformance.families.stepwise.bank.entry import cite, table
from conformance.families.stepwise.bank.norms import QUERY_KEY_NORMS
from conformance.families.stepwise.conditions import LOCAL_LAYERS, not_default

__all__ = ["BLOCK", "HEAD_NORMS", "NORMS", "SCALAR"]

DOCUMENT = "docs/gemma4.md"

block = table("block", DOCUMENT)
norm = table("norm", DOCUMENT)
scalar = table("scalar", DOCUMENT)

# Site in ids → site in sentences, and the knob of what is added to its gain.
_SITES = {
    "input": ("input_layernorm", "input_offset"),
    "post-attention": ("post_attention_layernorm", "post_attention_offset"),
    "pre-feedforward": ("pre_feedforward_layernorm", "pre_feedforward_offset"),
    "post-feedforward": ("post_feedforward_layernorm", "post_feedforward_offset"),
    "q": ("q_norm", "q_offset"),
    "k": ("k_norm", "k_offset"),
    "final": ("the last norm", "final_offset"),
}
_KNOBS = [knob for _, knob in _SITES.values()]


def _changes(knobs: list[str], value: Any) -> dict[str, Any]:
    return dict.fromkeys(knobs, value)


NORMS = (
    *(
        norm(
            f"gain-plus-one-{site}",
            2,
            "1 added to the gain",
            f"The gain of {name} is 1 + w instead of w.",
            **_changes([knob], 1.0),
        )
        for site, (name, knob) in _SITES.items()
    ),
    norm(
        "gain-plus-one-everywhere",
        2,
        "1 added to the gain",
        "The gain of every norm is 1 + w, as in earlier models of the name.",
        **_changes(_KNOBS, 1.0),
    ),
    norm(
        "gain-plus-one-heads",
        3,
        "1 added to the gain",
        "The gains of q_norm and k_norm are 1 + w.",
        q_offset=1.0,
        k_offset=1.0,
    ),
    norm(
        "gain-plus-one-residual",
        2,
        "1 added to the gain",
        "The gain of every norm over D is 1 + w, those of q_norm and k_norm are w.",
        **_changes([knob for knob in _KNOBS if knob not in ("q_offset", "k_offset")], 1.0),
    ),
    norm(
        "norm-mean-subtracted",
        2,
        "mean subtracted",
        "The norms over D subtract the mean first, as LayerNorm does.",
        centred_residual=True,
    ),
    norm(
        "head-norm-mean-subtracted",
        3,
        "mean subtracted",
        "q_norm and k_norm subtract the mean first, as LayerNorm does.",
        centred_heads=True,
    ),
    norm(
        "eps-1e-5",
        2,
        "eps not as configured",
        "Every norm has an eps of 1e-5, whatever is configured.",
        not_default("rms_norm_eps", 1e-5),
        residual_eps=1e-5,
        head_eps=1e-5,
    ),
    norm(
        "eps-1e-6",
        2,
        "eps not as configured",
        "Every norm has an eps of 1e-6, whatever is configured.",
        not_default("rms_norm_eps", 1e-6),
        residual_eps=1e-6,
        head_eps=1e-6,
    ),
    norm("eps-missing", 2, "eps not as configured", "No norm adds eps.", residual_eps=0.0, head_eps=0.0),
    norm(
        "head-eps-1e-5",
        3,
        "eps not as configured",
        "The norms of Q, K and V have an eps of 1e-5, whatever is configured.",
        not_default("rms_norm_eps", 1e-5),
        head_eps=1e-5,
    ),
    norm(
        "head-eps-missing",
        3,
        "eps not as configured",
        "The norms of Q, K and V add no eps.",
        head_eps=0.0,
    ),
    norm(
        "eps-outside-root",
        2,
        "eps outside the root",
        "Norms divide by sqrt(mean(x²)) + eps.",
        eps_place="outside the root",
    ),
    norm(
        "norm-weights-middle-exchanged",
        5,
        "norm weights exchanged",
        "post_attention_layernorm's weight is used before the MLP, as the name means elsewhere, and "
        "pre_feedforward_layernorm's after attention.",
        norm_weights="middle exchanged",
    ),
    norm(
        "norm-weights-pre-exchanged",
        5,
        "norm weights exchanged",
        "input_layernorm's weight is used before the MLP, and pre_feedforward_layernorm's before attention.",
        norm_weights="pre exchanged",
    ),
    norm(
        "norm-weights-post-exchanged",
        5,
        "norm weights exchanged",
        "post_attention_layernorm's weight is used after the MLP, and post_feedforward_layernorm's after "
        "attention.",
        norm_weights="post exchanged",
    ),
)


HEAD_NORMS = (
    *cite(QUERY_KEY_NORMS, DOCUMENT, 3),
    norm(
        "v-norm-missing",
        3,
        "V not normalised",
        "V is not normalised.",
        local_v_norm="missing",
        global_v_norm="missing",
    ),
    norm(
        "v-norm-missing-local",
        3,
        "V not normalised",
        "V is not normalised on local layers.",
        LOCAL_LAYERS,
        local_v_norm="missing",
    ),
    norm(
        "v-norm-missing-global",
        3,
        "V not normalised",
        "V is not normalised on global layers, where it is made of K's projection.",
        global_v_norm="missing",
    ),
    norm(
        "v-norm-all-heads",
        3,
        "head norm over all heads",
        "V is normalised over all heads at once.",
        local_v_norm="all-heads",
        global_v_norm="all-heads",
    ),
    norm(
        "v-norm-all-heads-local",
        3,
        "head norm over all heads",
        "V is normalised over all heads at once on local layers.",
        LOCAL_LAYERS,
        local_v_norm="all-heads",
    ),
    norm(
        "v-norm-all-heads-global",
        3,
        "head norm over all heads",
        "V is normalised over all heads at once on global layers.",
        global_v_norm="all-heads",
    ),
    norm(
        "v-norm-with-gain",
        3,
        "V normalised with a gain",
        "V's norm multiplies by k_norm's weight.",
        v_gain="k_norm",
    ),
)

BLOCK = (
    block(
        "post-attention-norm-after-add",
        2,
        "post-norm after the residual add",
        "post_attention_layernorm is applied to the sum of residual and attention.",
        post_attention_norm="after-add",
    ),
    block(
        "post-feedforward-norm-after-add",
        2,
        "post-norm after the residual add",
        "post_feedforward_layernorm is applied to the sum of residual and MLP.",
        post_feedforward_norm="after-add",
    ),
    block(
        "post-norms-after-add",
        2,
        "post-norm after the residual add",
        "Both post-norms are applied after the residual is added.",
        post_attention_norm="after-add",
        post_feedforward_norm="after-add",
    ),
    block(
        "post-attention-norm-missing",
        2,
        "norm left out",
        "Attention is added to the residual without post_attention_layernorm.",
        post_attention_norm="missing",
    ),
    block(
        "post-feedforward-norm-missing",
        2,
        "norm left out",
        "The MLP is added to the residual without post_feedforward_layernorm.",
        post_feedforward_norm="missing",
    ),
    block(
        "post-norms-missing",
        2,
        "norm left out",
        "Neither post-norm is applied, as in a block with pre-norms alone.",
        post_attention_norm="missing",
        post_feedforward_norm="missing",
    ),
    block(
        "block-of-two-norms",
        5,
        "block in another shape",
        "A block of two norms, input_layernorm before attention and post_attention_layernorm before the MLP.",
        norm_weights="middle exchanged",
        post_attention_norm="missing",
        post_feedforward_norm="missing",
    ),
    block(
        "final-norm-missing",
        2,
        "norm left out",
        "The head takes the residual without the last norm.",
        final_norm=False,
    ),
    block(
        "block-parallel",
        2,
        "block in another shape",
        "The MLP takes the block's input instead of the residual after attention.",
        block="parallel",
    ),
)

SCALAR = (
    scalar(
        "layer-scalar-missing",
        2,
        "layer scalar left out",
        "Layer scalars are not applied.",
        layer_scalar="nothing",
    ),
    scalar(
        "layer-scalar-on-branches",
        2,
        "layer scalar on the branch",
        "The layer scalar multiplies what attention and the MLP add instead of the stream.",
        layer_scalar="both branches",
    ),
    scalar(
        "layer-scalar-on-attention",
        2,
        "layer scalar on the branch",
        "The layer scalar multiplies what attention adds instead of the stream.",
        layer_scalar="attention branch",
    ),
    scalar(
        "layer-scalar-on-mlp",
        2,
        "layer scalar on the branch",
        "The layer scalar multiplies the output of the MLP before the residual is added.",
        layer_scalar="mlp branch",
    ),
    scalar(
        "layer-scalar-on-residual",
        2,
        "layer scalar on the residual",
        "The layer scalar multiplies what is carried past the MLP, but not the MLP's output.",
        layer_scalar="residual",
    ),
    scalar(
        "layer-scalar-twice",
        2,
        "layer scalar applied twice",
        "The stream is multiplied by the layer scalar twice at the end of a layer.",
        layer_scalar="stream twice",
    ),
    scalar(
        "layer-scalar-after-both",
        2,
        "layer scalar applied twice",
        "The stream is multiplied by the layer scalar after attention and again after the MLP.",
        layer_scalar="stream after both",
    ),
    scalar(
        "layer-scalar-after-attention",
        2,
        "layer scalar too early",
        "The stream is multiplied by the layer scalar after attention instead of after the MLP.",
        layer_scalar="stream after attention",
    ),
    scalar(
        "layer-scalar-of-first-layer",
        2,
        "one layer scalar for all",
        "Every layer has the scalar of the first one.",
        layer_scalar="stream, of layer 0",
    ),
)
