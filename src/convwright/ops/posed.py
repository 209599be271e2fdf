"""The problems that a call poses: its own, and those of the gradients that are wanted."""

from __future__ import annotations

from dataclasses import replace

from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.ops.call import Call

# What the operands' gradients are, as problems.
_GRADIENTS = {
    Direction.FORWARD: (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT),
    Direction.BACKWARD_DATA: (Direction.FORWARD, Direction.BACKWARD_WEIGHT),
}


def posed(call: Call) -> list[ConvProblem]:
    """All of them; raises in words where the call is bad or no problem known here."""
    problem = call.problem()
    gradients = gradient_problems(problem, call) if call.trains else ()
    return [problem, *(gradient for gradient in gradients if gradient is not None)]


def gradient_problems(problem: ConvProblem, call: Call) -> list[ConvProblem | None]:
    """For the input and for the weight of a call that poses ``problem``, None where no gradient is wanted."""
    behind = _with_dense_output(problem)
    return [
        _with_dense_output(behind.asking(direction)) if tensor.requires_grad else None
        for direction, tensor in zip(_GRADIENTS[problem.direction], (call.x, call.w), strict=True)
    ]


def _with_dense_output(problem: ConvProblem) -> ConvProblem:
    """The problem with a dense result. The gradient that is to come is dense, and so is one that is made, however its
    operand lies: elements of that may share memory."""
    output = problem.output
    dense = output.dense(output.layout if output.layout is not Layout.STRIDED else Layout.NCHW)
    if problem.direction is Direction.FORWARD:
        return replace(problem, y=dense)
    return replace(problem, x=dense) if problem.direction is Direction.BACKWARD_DATA else replace(problem, w=dense)
