"""The bank: every known way to get PLaMo 3 wrong that the deviating model can take."""

from __future__ import annotations

from conformance.families.plamo3.faults.bank.attention import ATTENTION, HEAD, MLP
from conformance.families.plamo3.faults.bank.cache import CACHE, OPERATIONS
from conformance.families.plamo3.faults.bank.mask import MASK, MODE, PATTERN, WINDOW
from conformance.families.plamo3.faults.bank.norms import BLOCK, HEAD_NORMS, NORMS
from conformance.families.plamo3.faults.bank.precision import PRECISION
from conformance.families.plamo3.faults.bank.rope import ROPE, YARN_FAULTS
from conformance.families.plamo3.faults.bank.rows import BATCHES, PADDING, POSITION, SEGMENT
from conformance.faults import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    *NORMS,
    *HEAD_NORMS,
    *BLOCK,
    *MLP,
    *ATTENTION,
    *ROPE,
    *YARN_FAULTS,
    *PATTERN,
    *WINDOW,
    *MASK,
    *MODE,
    *CACHE,
    *OPERATIONS,
    *POSITION,
    *PADDING,
    *SEGMENT,
    *BATCHES,
    *HEAD,
    *PRECISION,
)
