"""Compute an epilogue as work of its own, so that algorithms which fuse none compete for conv + bias + ReLU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.rewrites.rewrite import Rewrite
from convwright.tensors import activate_


class Unfuse(Rewrite):
    """``unfuse(…)``: the inner problem has no epilogue; residual, bias and activation are applied to its output."""

    name = "unfuse"

    def arguments(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        rounded = problem.dtype.narrow and problem.y.dtype is not DType.FP32
        if rounded:
            yield Refusal(self.name, f"sums are rounded to {problem.y.dtype} ahead of what would be applied to them")
        else:
            yield () if problem.epilogue else Refusal(self.name, f"its epilogue is {problem.epilogue}")

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        return replace(problem, epilogue=Epilogue())

    def scratch_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return 0

    def moved_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        """Each step reads and writes the output, and reads what it adds."""
        epilogue, operands = problem.epilogue, problem.operands
        steps = epilogue.residual + epilogue.bias + (epilogue.activation is not Activation.NONE)
        added = sum(operands[role].nbytes for role in (Role.RESIDUAL, Role.BIAS) if role in operands)
        return 2 * steps * problem.y.nbytes + added

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        return UnfusePlan(candidate, inner_plan)


class UnfusePlan:
    """Runs the inner plan, then the epilogue in place on its output."""

    def __init__(self, candidate: Candidate, inner_plan: Plan) -> None:
        problem = candidate.problem
        self.candidate = candidate
        self.workspace_bytes = inner_plan.workspace_bytes
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan
        self._bias_shape = (problem.k, *[1] * problem.rank)
        self._activation = problem.epilogue.activation

    def prepare(self, weight: Tensor) -> Tensor:
        return self._inner.prepare(weight)

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        y = self._inner(first, second, None, None, out, workspace)
        if residual is not None:
            y.add_(residual)
        if bias is not None:
            y.add_(bias.view(self._bias_shape))
        return activate_(y, self._activation)
