"""Epilogues in float64: before a gradient's products, and after a convolution's sums."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.epilogue_math import derive, per_channel
from convwright.tensors import activate_

# The initial value of a bias's gradient that is accumulated.
DB_BEFORE = 1.0
_STEPS = (Activation.NONE, Activation.RELU)  # activations with derivatives 0 and 1

Pair = tuple[Tensor, Tensor]


def before_activation(problem: ConvProblem, dy: Tensor, z: Tensor | None) -> Pair:
    """dy multiplied by the activation's derivative, and the scale of the product's errors: the magnitude of the
    product, or of dy if computing the derivative has rounding errors of its own."""
    dy = dy.double()
    if z is None:
        return dy, dy.abs()
    activation = problem.epilogue.activation
    dz = derive(dy, activation, z.double(), torch.empty_like(dy))
    return dz, (dz if activation in _STEPS else dy).abs()


def multiplied(problem: ConvProblem, tensors: Mapping[Role, Tensor]) -> tuple[Pair, Pair]:
    """The two operands that are multiplied, and those whose products scale the error.

    They are the given ones in their own dtype, except a gradient's dy if the epilogue changes it.
    """
    given = {role: tensors[role] for role in problem.direction.operands}
    scaled = {role: tensor.abs() for role, tensor in given.items()}
    if problem.direction is not Direction.FORWARD and problem.epilogue:
        dz, magnitude = before_activation(problem, given[Role.DY], tensors.get(Role.Z))
        factor = tensors.get(Role.SCALE)
        if factor is not None:
            factor = per_channel(factor.double(), dz)
            dz, magnitude = dz * factor, magnitude * factor.abs()
        given[Role.DY], scaled[Role.DY] = dz, magnitude
    first, second = problem.direction.operands
    return (given[first], given[second]), (scaled[first], scaled[second])


def with_epilogue(problem: ConvProblem, sums: Tensor, scale: Tensor, taken: Mapping[Role, Tensor]) -> Pair:
    """The result after the epilogue and the scale of its errors, from a convolution's sums and its products'
    magnitudes.

    ``taken`` are the epilogue's operands at the same elements, in float64. Sums of int8 are exact in any order, so
    their errors are scaled by the input of the activation.
    """
    forward = problem.direction is Direction.FORWARD
    if forward and Role.SCALE in taken:
        sums, scale = sums * taken[Role.SCALE], scale * taken[Role.SCALE].abs()
    for role in (Role.RESIDUAL, Role.BIAS):
        if role in taken:
            sums, scale = sums + taken[role], scale + taken[role].abs()
    stored = problem.output.dtype
    if problem.dtype is DType.INT8:
        scale = torch.ones_like(sums) if stored is DType.INT8 else sums.abs().clamp_(min=1.0)
    if forward:
        sums = activate_(sums, problem.epilogue.activation)
    if Role.BEFORE in taken:
        sums, scale = sums + taken[Role.BEFORE], scale + taken[Role.BEFORE].abs()
    return sums.clamp_(-128, 127) if stored is DType.INT8 else sums, scale


def bias_sums(problem: ConvProblem, tensors: Mapping[Role, Tensor]) -> Pair:
    """The bias's gradient and the scale of its errors."""
    dz, magnitude = before_activation(problem, tensors[Role.DY], tensors.get(Role.Z))
    over = [0, *range(2, dz.dim())]
    held = DB_BEFORE if problem.epilogue.accumulate else 0.0
    return dz.sum(over) + held, magnitude.sum(over) + held
