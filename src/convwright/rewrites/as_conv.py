"""Compute a matrix product as a 1x1 convolution, on views of the operands without copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from convwright.core.binding import Bound, RolePlan, bind_prepared
from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.kinds.linear import LinearProblem
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.rewrites.rewrite import Rewrite


class AsConv(Rewrite):
    """``as-conv(…)``: the rows of a matrix product are the pixels of one image of height 1.

    A row-major matrix is such an image with channels last, a column-major one is NCHW.
    """

    name = "as-conv"
    kind = "linear"

    def arguments(self, problem: LinearProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        yield from self.possible(problem, device)

    def possible(self, problem: LinearProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        yield () if problem.rows else Refusal(self.name, "an image needs a pixel, got 0 rows")

    def inner(self, problem: LinearProblem, arguments: Config) -> ConvProblem:
        (outputs, inputs), (along_outputs, along_inputs) = problem.w.shape, problem.w.strides
        strides = (along_outputs, along_inputs, along_inputs, along_inputs)
        weight = TensorSpec((outputs, inputs, 1, 1), problem.dtype, strides, problem.w.alignment)
        return ConvProblem(
            _image(problem.x), weight, _image(problem.y), stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1),
            epilogue=problem.epilogue,
        )  # fmt: skip

    def scratch_bytes(self, problem: LinearProblem, arguments: Config) -> int:
        return 0

    def moved_bytes(self, problem: LinearProblem, arguments: Config) -> int:
        return 0

    def plan(self, candidate: Candidate, inner_plan: Plan) -> Plan:
        return AsConvPlan(candidate, inner_plan)


class AsConvPlan(RolePlan):
    """Runs the inner plan on views."""

    def __init__(self, candidate: Candidate, inner_plan: Plan) -> None:
        self.candidate = candidate
        self.workspace_bytes = inner_plan.workspace_bytes
        self.writes_out = inner_plan.writes_out
        self._inner = inner_plan

    def prepare(self, weight: Tensor) -> Tensor:
        return self._inner.prepare(weight[:, :, None, None])

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        views = {role: _viewed(role, tensor) for role, tensor in operands.items()}
        inner = bind_prepared(self._inner, views, workspace)
        out = operands.get(Role.Y)
        if out is None:
            return lambda: inner()[0, :, 0, :].t()

        def call() -> Tensor:
            inner()
            return out

        return call


def _image(spec: TensorSpec) -> TensorSpec:
    """A matrix as one image: columns are channels, rows are pixels."""
    (rows, columns), (along_rows, along_columns) = spec.shape, spec.strides
    whole = max(rows * along_rows, columns * along_columns)
    return TensorSpec(
        (1, columns, 1, rows), spec.dtype, (whole, along_columns, whole, along_rows), spec.alignment
    )  # fmt: skip


def _viewed(role: str, tensor: Tensor) -> Tensor:
    """An operand as the convolution takes it; a weight is prepared already."""
    return tensor if role in (Role.BIAS, Role.W) else tensor.t()[None, :, None, :]
