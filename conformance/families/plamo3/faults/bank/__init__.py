"""The bank: every known way to get PLaMo 3 wrong that the deviating model can take."""

from __future__ import annotations

from conformance.families.plamo3.faults.bank.attention import ATTENTION, HEAD, MLP
from conformance.families.plamo3.faults.bank.norms import BLOCK, HEAD_NORMS, NORMS
from conformance.families.plamo3.faults.bank.pattern import PATTERN
from conformance.families.plamo3.faults.bank.precision import PRECISION
from conformance.families.plamo3.faults.bank.rope import ROPE, YARN_FAULTS
from conformance.families.stepwise.bank.cache import CACHE, OPERATIONS
from conformance.families.stepwise.bank.entry import cite
from conformance.families.stepwise.bank.mask import MASK, MODE, WINDOW
from conformance.families.stepwise.bank.rows import BATCHES, PADDED_POSITION, PADDING, POSITION, SEGMENT
from conformance.faults import Fault

__all__ = ["FAULTS"]

_DOCUMENT = "docs/plamo3.md"

FAULTS: tuple[Fault, ...] = (
    *NORMS,
    *HEAD_NORMS,
    *BLOCK,
    *MLP,
    *ATTENTION,
    *ROPE,
    *YARN_FAULTS,
    *PATTERN,
    *cite((*WINDOW, *MASK), _DOCUMENT, 6),
    *cite(MODE, _DOCUMENT, 8),
    *cite((*CACHE, *OPERATIONS, *POSITION), _DOCUMENT, 7),
    *cite((*PADDED_POSITION, *PADDING, *SEGMENT, *BATCHES), _DOCUMENT, 6),
    *HEAD,
    *PRECISION,
)
