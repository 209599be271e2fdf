"""Data and the float64 reference of a matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.kinds.linear import LinearProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking import drawing
from convwright.measuring.checking.kind import CHANNEL_DECADES, LARGE_EXPONENT, NON_FINITE_KINDS, Kind
from convwright.measuring.checking.parts import Points, Slices
from convwright.measuring.checking.placing import channel_factors
from convwright.measuring.checking.plain_data import middle
from convwright.measuring.checking.reference import Reference
from convwright.tensors import activate

# Above these FLOPs the reference covers some rows and columns only.
_MOST_FLOPS = {"cpu": 2e9, "cuda": 2e11}
_MOST_ELEMENTS = 2**22
# The most products in all sums of a quick check.
_MOST_PRODUCTS = {"cpu": 2**19, "cuda": 2**22}
_FLOPS_PER_US = {"cpu": 2e3, "cuda": 1e6}


def values(problem: LinearProblem, role: str, spec: TensorSpec, kind: Kind, generator: torch.Generator) -> Tensor:
    """Values of an operand: the input has the properties of ``kind``; the weight is scaled so that results are of order
    1."""
    if kind is Kind.INTEGERS:
        return _integers(problem, spec, generator)
    drawn = drawing.normal(spec.shape, generator, torch.float64 if spec.dtype is DType.FP64 else torch.float32)
    if role not in (Role.X, Role.W):
        return drawn
    if kind is Kind.LARGE:
        return drawn * 2.0 ** (LARGE_EXPONENT[spec.dtype] * (1 if role == Role.X else -1))
    if role == Role.W:
        return drawn * 2.0 ** -round(log2(problem.inputs) / 2)
    if kind is Kind.POSITIVE:
        return drawn.relu()
    if kind is Kind.CHANNEL_SCALED:
        return drawn * channel_factors(drawn, CHANNEL_DECADES)
    if kind in NON_FINITE_KINDS and drawn.numel():
        drawn[middle(spec.shape)] = torch.inf if kind is Kind.INFINITY else torch.nan
    return drawn


def _integers(problem: LinearProblem, spec: TensorSpec, generator: torch.Generator) -> Tensor:
    """±1, so few that sums of all |products| are exact in the dtype."""
    exact = 1 / problem.dtype.roundoff
    share = min((exact / (4 * problem.inputs)) ** 0.5, 0.5)
    signs = torch.randint(0, 2, spec.shape, generator=generator, device=generator.device).float() * 2 - 1
    luck = torch.rand(spec.shape, generator=generator, device=generator.device)
    return torch.where(luck < share, signs, 0.0)


def whole(problem: LinearProblem, tensors: Mapping[str, Tensor]) -> Reference:
    """Computed where the operands are; on some rows and columns if the whole would take too long or too much
    memory."""
    most = _MOST_FLOPS.get(tensors["x"].device.type, _MOST_FLOPS["cpu"])
    elements = min(_MOST_ELEMENTS, int(most / (2 * problem.inputs)))
    part = Slices.of(problem.y.shape, elements)
    rows, columns = (torch.tensor(kept, dtype=torch.int64, device=tensors["x"].device) for kept in part.kept)
    x, w = tensors["x"][rows].double(), tensors["w"][columns].double()
    added = {Role.BIAS: tensors[Role.BIAS][columns]} if Role.BIAS in tensors else {}
    if Role.RESIDUAL in tensors:
        added[Role.RESIDUAL] = part.take(Role.RESIDUAL, tensors[Role.RESIDUAL])
    return _reference(problem, part, x @ w.T, x.abs() @ w.abs().T, added)


def sampled(problem: LinearProblem, tensors: Mapping[str, Tensor], *, seed: int = 0) -> Reference:
    """The same at single elements. No sum is shortened."""
    device = tensors["x"].device
    most = max(_MOST_PRODUCTS.get(device.type, _MOST_PRODUCTS["cpu"]) // problem.inputs, 64)
    part = Points.of(problem.y.shape, device, seed=seed, most=most)
    rows, columns = part.places
    products = tensors["x"][rows].double() * tensors["w"][columns].double()
    added = {Role.BIAS: tensors[Role.BIAS][columns]} if Role.BIAS in tensors else {}
    if Role.RESIDUAL in tensors:
        added[Role.RESIDUAL] = tensors[Role.RESIDUAL][rows, columns]
    return _reference(problem, part, products.sum(1), products.abs().sum(1), added)


def whole_us(problem: LinearProblem, device: torch.device) -> float:
    """A rough upper bound for the time of a whole reference: one product for the result and one for its scale."""
    most, rate = (table.get(device.type, table["cpu"]) for table in (_MOST_FLOPS, _FLOPS_PER_US))
    return 2 * min(problem.flops, most) / rate


def _reference(
    problem: LinearProblem, part: Slices | Points, sums: Tensor, scale: Tensor, added: Mapping[Role, Tensor]
) -> Reference:
    for tensor in added.values():
        sums, scale = sums + tensor.double(), scale + tensor.double().abs()
    return Reference(problem, part, activate(sums, problem.epilogue.activation), scale, problem.outputs[-1])
