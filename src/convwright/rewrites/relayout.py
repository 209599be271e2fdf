"""Compute in another memory layout: operands are copied into it, the output is copied back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.rewrites.rewrite import Rewrite
from convwright.rewrites.scratch import Scratch, scratch_bytes
from convwright.tensors import empty


class Relayout(Rewrite):
    """``relayout(nhwc, …)``: the inner problem has all operands dense in NHWC. What is so already is not copied."""

    name = "relayout"

    def arguments(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        for layout in (Layout.NHWC, Layout.NCHW):
            arguments = (("layout", str(layout)),)
            if self.inner(problem, arguments) != problem:
                yield arguments
            else:
                yield Refusal(f"{self.name}({layout})", f"all operands are dense in {layout} already")

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        layout = Layout(str(dict(arguments)["layout"]))
        x, w, y = (_in_layout(spec, layout) for spec in (problem.x, problem.w, problem.y))
        return replace(problem, x=x, w=w, y=y)

    def scratch_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return scratch_bytes(_copied(problem, self.inner(problem, arguments)))

    def moved_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return sum(2 * spec.nbytes for spec in _copied(problem, self.inner(problem, arguments)).values())

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        return RelayoutPlan(candidate, inner_plan)


class RelayoutPlan:
    """Copies what lies otherwise into scratch, runs the inner plan, and copies its output back."""

    def __init__(self, candidate: Candidate, inner_plan: Plan) -> None:
        problem, inner = candidate.problem, inner_plan.candidate.problem
        self.candidate = candidate
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan
        self._scratch = Scratch(_copied(problem, inner), inner_plan.workspace_bytes)
        self.workspace_bytes = self._scratch.workspace_bytes
        self._first, self._second = problem.direction.operands
        self._output = problem.direction.output
        self._out_spec = problem.output
        self._weight_spec = inner.w if inner.w != problem.w else None

    def prepare(self, weight: Tensor) -> Tensor:
        if self._weight_spec is not None:
            weight = empty(self._weight_spec, weight.device).copy_(weight)
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
        scratch, inner_workspace = self._scratch.of(workspace, first.device)
        if out is None:
            out = empty(self._out_spec, first.device)
        if self._first in scratch:
            first = scratch[self._first].copy_(first)
        if self._second in scratch:
            second = scratch[self._second].copy_(second)
        if residual is not None and Role.RESIDUAL in scratch:
            residual = scratch[Role.RESIDUAL].copy_(residual)
        if self._output not in scratch:
            return self._inner(first, second, bias, residual, out, inner_workspace)
        return out.copy_(self._inner(first, second, bias, residual, scratch[self._output], inner_workspace))


def _in_layout(spec: TensorSpec, layout: Layout) -> TensorSpec:
    dense = spec.dense(layout)
    return spec if dense.strides == spec.strides else dense


def _copied(problem: ConvProblem, inner: ConvProblem) -> dict[Role, TensorSpec]:
    """What a call copies, as it lies inside. A weight is copied when it is prepared; a bias has one dimension only."""
    within = inner.operands
    different = {role: within[role] for role, spec in problem.operands.items() if within[role] != spec}
    different.pop(Role.W, None)
    return different
