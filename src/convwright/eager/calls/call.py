"""One call of one of the functions: its tensors, what was asked for, and the problem that it poses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from convwright.core.problem import ConvProblem, per_axis
from convwright.core.tensor_spec import Layout
from convwright.eager.asking.describe import problem_of, transposed_problem_of
from convwright.eager.asking.output_layout import output_layout
from convwright.eager.asking.request import Request
from convwright.eager.calls.form import Form


def as_batch(operand: Tensor | None) -> Tensor | None:
    """One image as a batch of it."""
    return operand.unsqueeze(0) if isinstance(operand, Tensor) else operand


# Input, weight, bias, residual, output.
Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    form: Form
    x: Tensor
    w: Tensor
    bias: Tensor | None
    residual: Tensor | None
    out: Tensor | None
    request: Request

    @property
    def operands(self) -> Operands:
        return self.x, self.w, self.bias, self.residual, self.out

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that are there, input and weight first."""
        return tuple(tensor for tensor in self.operands if tensor is not None)

    @property
    def extra(self) -> object:
        """What tells this call from one without a residual and an output; None where it has neither."""
        if self.residual is None and self.out is None:
            return None
        return self.residual is not None, self.out is not None

    @property
    def trains(self) -> bool:
        """Whether a gradient is wanted of it."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    def torchs_own(self) -> Tensor:
        """PyTorch's function on the caller's own arguments."""
        return self.form.own(self.x, self.w, self.bias, *self.form.window(self.request))

    def problem(self) -> ConvProblem:
        """The problem that this call poses; bad input is refused here, in one sentence."""
        request, padding = self.request, self.request.padding
        if self.form.transposed:
            return transposed_problem_of(
                self.x, self.w, self.bias,
                stride=request.stride, padding=request.padding, output_padding=request.output_padding,
                dilation=request.dilation, groups=request.groups, residual=self.residual, out=self.out,
            )  # fmt: skip
        if not isinstance(padding, str):
            padding = per_axis("padding", padding, self.form.rank)  # PyTorch's functions take no pairs
        return problem_of(
            self.x, self.w, self.bias,
            stride=request.stride, padding=padding, dilation=request.dilation, groups=request.groups,
            activation=request.activation, residual=self.residual, out=self.out,
        )  # fmt: skip

    def output_layout(self, problem: ConvProblem) -> Layout:
        """The layout of PyTorch's own output, for the problem that this call poses."""
        added = per_axis("output_padding", self.request.output_padding, problem.rank) if self.form.transposed else None
        return output_layout(problem, self.x, self.w, self.bias, added)


def per_call(form: Form, request: Request, compute: Callable[[Call], Tensor]) -> Callable[..., Tensor]:
    """``compute``, called as a candidate is: with the tensors of each call."""

    def runs(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        return compute(Call(form, x, w, bias, residual, out, request))

    return runs
