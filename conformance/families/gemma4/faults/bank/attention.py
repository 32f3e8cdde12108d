"""Faults of attention, shared keys and values, the MLP, embedding and head (docs/gemma4.md §2, §3, §7)."""

from __future__ import annotations

from conformance.families.gemma4.faults.conditions import (
    ONE_STEP,
    SHARING,
    SHARING_MORE,
    SHARING_OF_SEVERAL,
    UNLIKE_GROUPS,
)
from conformance.families.stepwise.bank.entry import table
from conformance.families.stepwise.conditions import LOCAL_LAYERS, not_default
from conformance.faults import CACHED

__all__ = ["ATTENTION", "HEAD", "MLP", "SHARING_FAULTS", "VALUE"]

attention = table("attention", "docs/gemma4.md")
head = table("head", "docs/gemma4.md")
mlp = table("mlp", "docs/gemma4.md")
sharing = table("sharing", "docs/gemma4.md")
value = table("value", "docs/gemma4.md")

ATTENTION = (
    attention(
        "scale-by-head",
        3,
        "scores scaled",
        "Scores are divided by sqrt(d), d as it is in the layer.",
        local_scale="own",
        global_scale="own",
    ),
    attention(
        "scale-by-head-local",
        3,
        "scores scaled",
        "Scores of local layers are divided by sqrt(d).",
        LOCAL_LAYERS,
        local_scale="own",
    ),
    attention(
        "scale-by-head-global",
        3,
        "scores scaled",
        "Scores of global layers are divided by sqrt(d).",
        global_scale="own",
    ),
    attention(
        "scale-by-local-head",
        3,
        "scores scaled",
        "Scores of all layers are divided by the root of a local layer's head size.",
        local_scale="own",
        global_scale="other",
    ),
    attention(
        "scale-by-global-head",
        3,
        "scores scaled",
        "Scores of all layers are divided by the root of a global layer's head size.",
        local_scale="other",
        global_scale="own",
    ),
    attention(
        "scale-from-hidden-size",
        3,
        "scores scaled",
        "Scores are divided by sqrt(D/Hq).",
        local_scale="hidden",
        global_scale="hidden",
    ),
    attention(
        "gqa-tiled",
        3,
        "tile instead of repeat",
        "Query head h uses K/V head h mod Hkv instead of h div (Hq/Hkv).",
        local_grouping="tile",
        global_grouping="tile",
    ),
    attention(
        "gqa-tiled-local",
        3,
        "tile instead of repeat",
        "On local layers, query head h uses K/V head h mod Hkv.",
        LOCAL_LAYERS,
        local_grouping="tile",
    ),
    attention(
        "gqa-tiled-global",
        3,
        "tile instead of repeat",
        "On global layers, query head h uses K/V head h mod Hkv.",
        global_grouping="tile",
    ),
    attention(
        "gqa-groups-global-as-local",
        3,
        "head counts of the other kind of layer",
        "Global layers group query heads by the K/V heads of local ones; heads that are left take the last.",
        UNLIKE_GROUPS,
        global_grouping="other",
    ),
    attention(
        "gqa-groups-local-as-global",
        3,
        "head counts of the other kind of layer",
        "Local layers group query heads by the K/V heads of global ones; heads that are left take the last.",
        UNLIKE_GROUPS,
        LOCAL_LAYERS,
        local_grouping="other",
    ),
    attention(
        "scores-capped",
        3,
        "soft cap where there is none",
        "Scores are soft-capped at 50.",
        score_cap="50",
    ),
    attention(
        "scores-capped-as-logits",
        3,
        "soft cap where there is none",
        "Scores are soft-capped as logits are.",
        score_cap="final",
    ),
)

VALUE = (
    value(
        "value-from-normed-key",
        3,
        "V from another stage of K",
        "On global layers V is made of K after k_norm, and normalised again.",
        global_value="normed key",
    ),
    value(
        "value-is-normed-key",
        3,
        "V from another stage of K",
        "On global layers V is K after k_norm.",
        global_value="normed key",
        global_v_norm="missing",
    ),
    value(
        "value-from-turned-key",
        3,
        "V from another stage of K",
        "On global layers V is made of K after k_norm and RoPE, and normalised again.",
        global_value="turned key",
    ),
    value(
        "value-is-turned-key",
        3,
        "V from another stage of K",
        "On global layers V is K as the cache holds it, after k_norm and RoPE.",
        global_value="turned key",
        global_v_norm="missing",
    ),
    value(
        "value-from-key-on-local-layers-too",
        3,
        "V from K on local layers",
        "Local layers make V of k_proj, too, and pass over v_proj.",
        LOCAL_LAYERS,
        local_projections="k_proj for both",
    ),
    value(
        "key-and-value-exchanged",
        3,
        "K and V exchanged",
        "On local layers k_proj makes V and v_proj makes K.",
        LOCAL_LAYERS,
        local_projections="exchanged",
    ),
)

SHARING_FAULTS = (
    sharing(
        "sharing-projects-its-own",
        7,
        "K/V projected instead of shared",
        "Layers that share project K and V of their own input, by the weights of the layer to take from.",
        SHARING,
        sharing="own projections",
    ),
    sharing(
        "sharing-projects-its-own-without-a-cache",
        7,
        "K/V projected instead of shared",
        "Layers that share project K and V of their own input where no cache is used.",
        SHARING,
        ONE_STEP,
        sharing="own projections without a cache",
    ),
    sharing(
        "sharing-projects-its-own-on-a-cache",
        7,
        "K/V projected instead of shared",
        "On top of a cache, layers that share project K and V of their own input.",
        SHARING,
        CACHED,
        sharing="own projections on a cache",
    ),
    sharing(
        "sharing-projects-nothing",
        7,
        "K/V projected instead of shared",
        "Layers that share project keys and values by weights that no checkpoint fills: zeros.",
        SHARING,
        sharing="zeros",
    ),
    sharing(
        "sharing-from-first-layer",
        7,
        "K/V of the wrong layer",
        "Layers that share take keys and values from the first layer of their kind instead of the last.",
        SHARING_OF_SEVERAL,
        sharing="of the first layer",
    ),
    sharing(
        "sharing-one-layer-more",
        7,
        "K/V of the wrong layer",
        "One layer more than configured shares keys and values.",
        SHARING_MORE,
        sharing_layers=1,
    ),
    sharing(
        "sharing-misses-cache",
        7,
        "shared K/V without the cache",
        "Layers that share see keys and values of new tokens only, not the cached ones.",
        SHARING,
        CACHED,
        sharing="of new tokens",
    ),
    sharing(
        "sharing-turns-again",
        7,
        "shared K/V processed again",
        "Layers that share rotate the keys that they take over, though these are rotated already.",
        SHARING,
        sharing="turned again",
    ),
)

MLP = (
    mlp(
        "gate-up-exchanged",
        2,
        "gate and up exchanged",
        "up_proj is taken for the gate, and gate_proj for up.",
        gate_up="exchanged",
    ),
    mlp("activation-gelu", 2, "another activation", "The activation is GELU with erf.", activation="gelu"),
    mlp(
        "activation-in-float16",
        2,
        "activation in FP16",
        "GELU is looked up in a table: its argument and its result are rounded to FP16.",
        rounds=True,
        activation="gelu-tanh-half",
    ),
    mlp("activation-silu", 2, "another activation", "The activation is SiLU.", activation="silu"),
    mlp(
        "activation-quick-gelu",
        2,
        "another activation",
        "The activation is x times sigmoid(1.702 x).",
        activation="quick-gelu",
    ),
    mlp("activation-relu", 2, "another activation", "The activation is ReLU.", activation="relu"),
)

HEAD = (
    head(
        "head-unset-though-tied",
        2,
        "tied head not tied",
        "The head is left unset instead of tied to the embedding: all logits are zero.",
        head="unset",
    ),
    head(
        "head-scaled-as-embedding",
        2,
        "tied head scaled",
        "The embedding is multiplied by sqrt(D) at load, and the tied head with it.",
        head="scaled embedding",
    ),
    head(
        "embedding-unscaled",
        2,
        "embedding not scaled",
        "Embeddings are not multiplied by sqrt(D).",
        embedding_factor="missing",
    ),
    head(
        "softcap-missing",
        2,
        "soft cap wrong",
        "Logits are not soft-capped.",
        softcap="missing",
    ),
    head(
        "softcap-defaulted",
        2,
        "soft cap wrong",
        "Logits are soft-capped at 30, whatever is configured.",
        not_default("final_logit_softcapping", 30.0),
        softcap="30",
    ),
    head(
        "softcap-twice",
        2,
        "soft cap wrong",
        "Logits are soft-capped twice.",
        softcap="twice",
    ),
    head(
        "softcap-clamps",
        2,
        "soft cap wrong",
        "Logits are clamped at the cap instead of soft-capped.",
        softcap="clamped",
    ),
    head(
        "logits-normalised",
        2,
        "log-probabilities instead of logits",
        "The head returns log-probabilities.",
        logits="log-softmax",
    ),
)
