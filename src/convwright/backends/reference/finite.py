"""Direct computation where a transform would spread an infinity.

A transform turns everything in a tile with an infinity into NaN. On a CPU one pass over operands and result checks
whether all numbers are finite. If not, ``reference/direct`` computes the result, even if only the transform overflowed.
On a GPU nothing is checked, since the host would have to wait for the answer.
"""

from __future__ import annotations

from math import isfinite
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from convwright.backends.reference.direct import DirectPlan
from convwright.core.direction import Direction
from convwright.core.plan import Plan
from convwright.tensors import empty


@runtime_checkable
class Spreading(Plan, Protocol):
    """A plan that spreads numbers that are not finite."""

    def transform(self, numbers: Tensor) -> Tensor:
        """A prepared weight from its real numbers in one dimension."""


class FinitePlan:
    """Runs a ``Spreading`` plan, and ``reference/direct`` if an operand or the result is not finite.

    A prepared weight is the transform, followed by the weight by taps.
    """

    writes_out = True

    def __init__(self, spreading: Spreading) -> None:
        self.candidate, self.workspace_bytes = spreading.candidate, spreading.workspace_bytes
        self.spreading, self.direct = spreading, DirectPlan(spreading.candidate)
        problem = self.candidate.problem
        self._takes_weight = problem.direction is not Direction.BACKWARD_WEIGHT
        outputs, inputs = problem.k // problem.groups, problem.w.shape[1]
        self._taps = (*problem.taps, problem.groups, outputs, inputs)

    def prepare(self, weight: Tensor) -> Tensor:
        transform = self.spreading.prepare(weight)
        numbers = torch.view_as_real(transform) if transform.is_complex() else transform
        return torch.cat((numbers.reshape(-1), self.direct.prepare(weight).view(-1)))

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if out is None:
            out = empty(self.candidate.problem.output, first.device)
        transform = by_tap = second
        if self._takes_weight:
            taps = self.candidate.problem.w.numel
            transform, by_tap = self.spreading.transform(second[:-taps]), second[-taps:].view(self._taps)
        if is_finite(first) and is_finite(by_tap):
            self.spreading(first, transform, bias, residual, out, workspace)
            if is_finite(out):
                return out
        return self.direct(first, by_tap, bias, residual, out)


def is_finite(tensor: Tensor) -> bool:
    """True only if all numbers are finite, since a sum with another number is not. The sum is computed in fp32 at
    least, in which fp16 numbers do not overflow."""
    wide = tensor.dtype if tensor.dtype is torch.float64 else torch.float32
    return isfinite(tensor.sum(dtype=wide).item())
