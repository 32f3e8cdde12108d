"""The bank: every known way to get Gemma 4 wrong that the deviating model can take."""

from __future__ import annotations

from conformance.families.gemma4.faults.bank.attention import ATTENTION, HEAD, MLP, SHARING_FAULTS, VALUE
from conformance.families.gemma4.faults.bank.norms import BLOCK, HEAD_NORMS, NORMS, SCALAR
from conformance.families.gemma4.faults.bank.precision import PRECISION
from conformance.families.gemma4.faults.bank.rope import PATTERN, ROPE
from conformance.families.stepwise.bank.cache import CACHE, OPERATIONS
from conformance.families.stepwise.bank.entry import cite
from conformance.families.stepwise.bank.mask import MASK, MODE, WINDOW
from conformance.families.stepwise.bank.rows import BATCHES, PADDED_POSITION, PADDING, POSITION, SEGMENT
from conformance.faults import Fault

__all__ = ["FAULTS"]

_DOCUMENT = "docs/gemma4.md"

FAULTS: tuple[Fault, ...] = (
    *NORMS,
    *HEAD_NORMS,
    *BLOCK,
    *SCALAR,
    *MLP,
    *ATTENTION,
    *VALUE,
    *SHARING_FAULTS,
    *ROPE,
    *PATTERN,
    *cite((*WINDOW, *MASK, *MODE, *CACHE, *OPERATIONS), _DOCUMENT, 3),
    *cite((*POSITION, *PADDED_POSITION), _DOCUMENT, 4),
    *cite((*PADDING, *SEGMENT, *BATCHES), _DOCUMENT, 3),
    *HEAD,
    *PRECISION,
)
