"""Faults of attention, the MLP, embedding and head (docs/plamo3.md §3, §4)."""

from __future__ import annotations

from conformance.families.plamo3.faults.conditions import TIED, UNTIED
from conformance.families.stepwise.bank.entry import table
from conformance.families.stepwise.conditions import of_spec
from conformance.faults import SHAPE

__all__ = ["ATTENTION", "HEAD", "MLP"]

attention = table("attention", "docs/plamo3.md")
head = table("head", "docs/plamo3.md")
mlp = table("mlp", "docs/plamo3.md")

_PADDING_ROWS = of_spec(
    "untied, V not a multiple of 16",
    "an untied head with padding rows",
    lambda spec: not spec.tie_word_embeddings and spec.padded_vocab_size > spec.vocab_size,
)

ATTENTION = (
    attention(
        "scale-from-hidden-size",
        4,
        "scale from D/Hq, or none",
        "Scores are divided by sqrt(D/Hq) instead of sqrt(d).",
        scale="hidden",
    ),
    attention(
        "scale-missing",
        4,
        "scale from D/Hq, or none",
        "Scores are not divided by sqrt(d).",
        scale="none",
    ),
    attention(
        "scale-twice",
        4,
        "scale applied twice",
        "Scores are divided by sqrt(d) twice, in the query and again in the kernel.",
        scale="squared",
    ),
    attention(
        "gqa-tiled",
        4,
        "tile instead of repeat",
        "Query head h uses K/V head h mod Hkv instead of h div (Hq/Hkv).",
        grouping="tile",
    ),
    attention(
        "qkv-interleaved",
        4,
        "qkv interleaved per head",
        "qkv_proj is read as a group of query heads with their key and value, K/V head by K/V head.",
        qkv="interleaved",
    ),
    attention(
        "qkv-value-before-key",
        4,
        "qkv blocks in another order",
        "The last two blocks of qkv_proj are read as value and key.",
        qkv="value before key",
    ),
    attention(
        "scores-capped",
        4,
        "soft cap where there is none",
        "Scores are soft-capped at 50.",
        score_cap=50.0,
    ),
)

MLP = (
    mlp(
        "gate-up-exchanged",
        4,
        "gate and up exchanged",
        "The rows of up are taken for gate.",
        gate_up="up first",
    ),
    mlp(
        "gate-up-interleaved",
        4,
        "gate and up interleaved",
        "Even rows of gate_up_proj are taken for gate and odd rows for up.",
        gate_up="interleaved",
    ),
    mlp(
        "activation-gelu",
        4,
        "another activation",
        "The activation is GELU with erf.",
        activation="gelu",
    ),
    mlp(
        "activation-gelu-tanh",
        4,
        "another activation",
        "The activation is GELU's approximation with tanh.",
        activation="gelu-tanh",
    ),
    mlp(
        "activation-quick-gelu",
        4,
        "another activation",
        "The activation is x times sigmoid(1.702 x).",
        activation="quick-gelu",
    ),
    mlp("activation-relu", 4, "another activation", "The activation is ReLU.", activation="relu"),
)

HEAD = (
    head(
        "head-tied-though-untied",
        3,
        "untied head tied",
        "The embedding is used as the head, though the checkpoint has a head of its own.",
        UNTIED,
        head="embedding",
    ),
    head(
        "head-unset-though-tied",
        3,
        "tied head not tied",
        "The head is left unset instead of tied to the embedding: all logits are zero.",
        TIED,
        head="unset",
    ),
    head(
        "head-padding-returned",
        3,
        "padded vocabulary leaks",
        "The padding rows of the head give logits too.",
        _PADDING_ROWS,
        reveals=SHAPE,
        why="more logits than the vocabulary has tokens",
        head_rows="all",
    ),
    head(
        "head-padding-first",
        3,
        "padded vocabulary leaks",
        "The padding rows of the head are taken to be the first ones.",
        _PADDING_ROWS,
        head_rows="last",
    ),
    head(
        "embedding-scaled",
        4,
        "embedding scaled",
        "Embeddings are multiplied by sqrt(D).",
        embedding_scale="sqrt",
    ),
    head(
        "logits-capped",
        4,
        "soft cap where there is none",
        "Logits are soft-capped at 30.",
        logit_cap=30.0,
    ),
    head(
        "logits-normalised",
        4,
        "log-probabilities instead of logits",
        "The head returns log-probabilities.",
        logits="log-softmax",
    ),
)
