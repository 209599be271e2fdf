"""Compute a 1-d or 3-d convolution as a 2-d one, on views of the operands without copies."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.rewrites.rewrite import Rewrite
from convwright.rewrites.view_2d import View2D, refusal_reason, view_of
from convwright.tensors import empty, laid_, unviewed


class As2D(Rewrite):
    """``as-2d(…)``: a 1-d convolution gets height 1; in a 3-d one, two dimensions are merged, or depth joins the batch.

    Dimensions can be merged if the filter has one tap there, as in the factored filters of video networks (1x3x3, then
    3x1x1), and if one stride covers both in memory.
    """

    name = "as-2d"

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        yield Refusal(self.name, refusal_reason(problem)) if view_of(problem) is None else ()

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        return _view(problem).inner(problem)

    def scratch_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return 0

    def moved_bytes(self, problem: ConvProblem, arguments: Config) -> int:
        return 0

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        return As2DPlan(candidate, inner_plan)


class As2DPlan:
    """Runs the inner plan on views."""

    def __init__(self, candidate: Candidate, inner_plan: Plan) -> None:
        self.candidate = candidate
        self.workspace_bytes = inner_plan.workspace_bytes
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan
        self._view = _view(candidate.problem)
        self._second_is_weight = Role.W in candidate.problem.operands
        self._writes_weight = candidate.problem.direction.output is Role.DW
        self._out_spec = candidate.problem.output

    def prepare(self, weight: Tensor) -> Tensor:
        return self._inner.prepare(self._view.weight(weight))

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        view = self._view
        first = view.images(first)
        if not self._second_is_weight:
            second = view.images(second)
        if residual is not None:
            residual = view.images(residual)
        if out is None:
            if not self.writes_out:
                made = self._seen_back(self._inner(first, second, bias, residual, None, workspace))
                return unviewed(laid_(made, self._out_spec))
            out = empty(self._out_spec, first.device)
        self._inner(first, second, bias, residual, self._seen(out), workspace)
        return out

    def _seen(self, out: Tensor) -> Tensor:
        return self._view.weight(out) if self._writes_weight else self._view.images(out)

    def _seen_back(self, made: Tensor) -> Tensor:
        shape = self._out_spec.shape
        return self._view.weight_back(made) if self._writes_weight else self._view.images_back(made, shape)


def _view(problem: ConvProblem) -> View2D:
    view = view_of(problem)
    assert view is not None, "a problem that ``arguments`` refuses was asked for"
    return view
