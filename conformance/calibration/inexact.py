"""Evaluations whose elementary functions are less exact than this machine's: what an engine may be allowed.

Runs where torch does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["ALLOWED", "Inexact"]

# Units in the last place by which a function may be off in single precision: OpenCL's full profile, where
# products and sums are exact to rounding. softmax and silu are an exponential and a division.
ALLOWED: Mapping[str, float] = {
    "cos": 4.0,
    "div": 2.5,
    "exp": 3.0,
    "rsqrt": 2.0,
    "silu": 3.0 + 2.5,
    "sin": 4.0,
    "softmax": 3.0 + 2.5,
    "sqrt": 3.0,
}


class Inexact(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context, every result of such a function is off at random, by up to a share of `ALLOWED`.

    Args:
        share: 1 for all that is allowed, 2 for twice as much.
        seed: of the errors, which are uniform.
    """

    def __init__(self, share: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._share = share
        self._draws = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The function's result, disturbed."""
        result = func(*args, **(kwargs or {}))
        # Inside inference mode softmax arrives under its own name, outside as _softmax.
        allowed = ALLOWED.get(func.overloadpacket.__name__.strip("_"))
        if allowed is None or not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        return self._off_by(result, allowed * self._share)

    def _off_by(self, values: Tensor, most: float) -> Tensor:
        wide = values.double()
        _, exponent = torch.frexp(wide)
        unit = torch.ldexp(torch.full_like(wide, torch.finfo(values.dtype).eps), exponent - 1)
        unit[wide == 0] = 0  # what is masked stays masked
        error = 2 * torch.rand(values.shape, generator=self._draws, dtype=torch.float64) - 1
        return (wide + most * error * unit).to(values.dtype)
