"""Expressions by PyTorch's own functions, one after another: the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from convwright.backends.torch_native import pointwise_into
from convwright.backends.torch_native.row_functions import function_of
from convwright.backends.torch_native.whole import torch_version, why_not_asked
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType, plain_arithmetic
from convwright.core.kinds.pointwise import OUTPUT, PointwiseProblem
from convwright.core.policy import Policy
from convwright.tensors import laid_, torch_dtype
from convwright.torch_operators import computing


class TorchPointwise:
    """``torch/default``: PyTorch's function for the whole expression if there is one, else one call per operator, each
    rounded to the dtype that PyTorch promotes to. ``torch/into`` calls operators that write to given memory."""

    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return torch_version()

    def candidates(self, problem: PointwiseProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = why_not_asked(device)
        if reason is not None:
            yield from (Refusal(f"torch/{name}", reason) for name in ("default", pointwise_into.NAME))
            return
        arithmetic = plain_arithmetic(problem.dtype)
        yield Candidate(problem, "torch", "default", (), arithmetic, 0, True, Source.RULE)
        reason = pointwise_into.refusal_reason(problem)
        if reason is not None:
            yield Refusal(f"torch/{pointwise_into.NAME}", reason)
            return
        nbytes = pointwise_into.workspace_bytes(problem)
        yield Candidate(problem, "torch", pointwise_into.NAME, (), arithmetic, nbytes, True, Source.RULE)

    def overwrites(self, candidate: Candidate) -> frozenset[str]:
        is_into = candidate.algorithm == pointwise_into.NAME
        return pointwise_into.overwrites(candidate.problem) if is_into else frozenset()

    def build(self, candidate: Candidate, device: DeviceFacts) -> RolePlan:
        if candidate.algorithm == pointwise_into.NAME:
            return pointwise_into.IntoPlan(candidate, torch.device(device.torch_name or "cpu"))
        return TorchPointwisePlan(candidate)


class TorchPointwisePlan(RolePlan):
    """The result has the problem's layout. If PyTorch returns another layout, it is copied, and the copy is timed."""

    writes_out = False

    def __init__(self, candidate: Candidate) -> None:
        problem: PointwiseProblem = candidate.problem
        self.candidate = candidate
        inside = torch.float64 if problem.dtype is DType.FP64 else torch.float32
        self._compute = function_of(problem) or computing(problem, inside)
        self._y = problem.y
        self._dtype = torch_dtype(problem.y.dtype)

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        return lambda: self.compute(operands)

    def compute(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Tensor:
        out = operands.get(OUTPUT)
        return self._made(operands) if out is None else out.copy_(self._compute(operands))

    def _made(self, inputs: Mapping[str, Tensor]) -> Tensor:
        made = self._compute(inputs).to(self._dtype)
        if tuple(made.shape) != self._y.shape:  # each operand is broadcast along some dimension
            made = made.expand(self._y.shape)
        if any(made is given for given in inputs.values()):
            made = made.clone()  # the expression is an operand
        return laid_(made, self._y)
