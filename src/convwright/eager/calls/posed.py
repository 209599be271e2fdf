"""The problems of a call: its own, and one for each gradient that is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from convwright.core.direction import Direction
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.eager.calls.call import Call

# The problems that the operands' gradients are.
_GRADIENTS = {
    Direction.FORWARD: (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT),
    Direction.BACKWARD_DATA: (Direction.FORWARD, Direction.BACKWARD_WEIGHT),
}
# Where a problem states its result.
_RESULTS = {Direction.FORWARD: "y", Direction.BACKWARD_DATA: "x", Direction.BACKWARD_WEIGHT: "w"}
# Activations whose derivative follows from the output alone.
FROM_OUTPUT = (Activation.NONE, Activation.RELU)


class Wanted(NamedTuple):
    """The operands of a call that need a gradient."""

    x: bool = False
    w: bool = False
    bias: bool = False
    residual: bool = False

    @classmethod
    def of(cls, *operands: Tensor | None) -> Wanted:
        """For a call with these operands, in this order."""
        trains = torch.is_grad_enabled()
        return cls(*(trains and tensor is not None and tensor.requires_grad for tensor in operands))

    @classmethod
    def at(cls, call: Call) -> Wanted:
        return cls.of(call.x, call.w, call.bias, call.residual)


def posed(call: Call) -> list[ConvProblem]:
    """All problems of a call. Raises an error if the call is bad or no problem describes it."""
    wanted = Wanted.at(call)
    problem = trained(call.problem(), wanted)
    return [problem, *(gradient for gradient in gradient_problems(problem, wanted) if gradient is not None)]


def trained(problem: ConvProblem, wanted: Wanted) -> ConvProblem:
    """The problem without its activation, if a gradient is needed and only autograd can compute the derivative."""
    if not any(wanted) or problem.epilogue.activation in FROM_OUTPUT:
        return problem
    return replace(problem, epilogue=replace(problem.epilogue, activation=Activation.NONE))


def gradient_problems(problem: ConvProblem, wanted: Wanted) -> list[ConvProblem | None]:
    """The gradient problems of input and weight for a call with this problem; None where no gradient is needed."""
    behind = with_dense_output(problem)
    return [
        with_dense_output(behind, direction, beside=behind.output).asking(direction) if is_wanted else None
        for direction, is_wanted in zip(_GRADIENTS[problem.direction], (wanted.x, wanted.w), strict=True)
    ]


def with_dense_output(
    problem: ConvProblem, direction: Direction | None = None, *, beside: TensorSpec | None = None
) -> ConvProblem:
    """The problem with a dense result, in its own direction or another. Incoming gradients are dense, and so are
    computed ones: elements of an expanded operand may share memory. The result has channels last if ``beside`` has:
    PyTorch lays gradients that way if either input or weight has channels last."""
    name = _RESULTS[direction or problem.direction]
    spec = getattr(problem, name)
    is_last = Layout.NHWC in (spec.layout, beside and beside.layout)
    return replace(problem, **{name: spec.dense(Layout.NHWC if is_last else Layout.NCHW)})
