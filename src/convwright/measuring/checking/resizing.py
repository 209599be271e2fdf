"""The float64 reference of a resize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from convwright.core.dtype import DType
from convwright.core.kinds.resize import Interpolation, ResizeProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking.kind import LARGE_EXPONENT, Kind
from convwright.measuring.checking.parts import MOST_ELEMENTS, Points, Slices
from convwright.measuring.checking.plain_data import plain_values
from convwright.measuring.checking.reference import Reference

# Bytes in float64 that a device moves in a microsecond: a rough estimate.
_BYTES_PER_US = {"cpu": 2e3, "cuda": 5e5}
_LARGE_EXPONENT_IN_FP64 = 400
# Two products and their sum are rounded, and a weight is a difference.
_ROUNDINGS = 4.0

# Value and absolute error.
Pair = tuple[Tensor, Tensor]


def values(problem: ResizeProblem, role: str, spec: TensorSpec, kind: Kind, generator: torch.Generator) -> Tensor:
    """Values of the input. Large fp64 values are limited so that the squares of errors, whose sum is compared, do not
    overflow."""
    drawn = plain_values(problem, role, spec, kind, generator)
    if kind is Kind.LARGE and spec.dtype is DType.FP64:
        return drawn * 2.0 ** (_LARGE_EXPONENT_IN_FP64 - LARGE_EXPONENT[DType.FP64])
    return drawn


def whole(problem: ResizeProblem, tensors: Mapping[str, Tensor]) -> Reference:
    """Computed where the input is; on slices if the whole would take too much memory."""
    part = Slices.of(problem.y.shape, MOST_ELEMENTS // problem.reduction)
    return _reference(problem, tensors["x"], part, _along(part.kept, tensors["x"].device))


def sampled(problem: ResizeProblem, tensors: Mapping[str, Tensor], *, seed: int = 0) -> Reference:
    """The same on single elements."""
    part = Points.of(problem.y.shape, tensors["x"].device, seed=seed)
    return _reference(problem, tensors["x"], part, list(part.places))


def whole_us(problem: ResizeProblem, device: torch.device) -> float:
    """A rough upper bound for the time of a whole reference."""
    rate = _BYTES_PER_US.get(device.type, _BYTES_PER_US["cpu"])
    return 8 * 4 * problem.reduction * min(problem.y.numel, MOST_ELEMENTS // problem.reduction) / rate


def resized(problem: ResizeProblem, x: Tensor) -> Tensor:
    """The whole output in float64, for an input of any dtype, at the problem's positions."""
    value, _ = interpolated(problem, x, _along([range(size) for size in problem.y.shape], x.device))
    return value


def _along(kept: Sequence[Sequence[int]], device: torch.device) -> list[Tensor]:
    """Positions along each dimension, shaped to broadcast over the output."""
    shapes = [[-1 if each == dim else 1 for each in range(len(kept))] for dim in range(len(kept))]
    return [
        torch.tensor([*some], dtype=torch.int64, device=device).reshape(shape)
        for some, shape in zip(kept, shapes, strict=True)
    ]


def _reference(problem: ResizeProblem, x: Tensor, part: Slices | Points, places: list[Tensor]) -> Reference:
    value, error = interpolated(problem, x, places)
    value, error = value.expand(part.shape), error.expand(part.shape)
    return Reference(problem, part, value, value.abs() + error / problem.y.dtype.roundoff, problem.outputs[-1])


def interpolated(problem: ResizeProblem, x: Tensor, places: list[Tensor]) -> Pair:
    """The output in float64 at positions along each of its dimensions, and the largest difference from it if each step
    is rounded."""
    around = [_Around.of(problem, dim, place) for dim, place in enumerate(places[2:])]
    if problem.interpolation is Interpolation.NEAREST:
        value = x[(*places[:2], *(each.first for each in around))].double()
        return value, torch.zeros_like(value)
    unit = 2.0**-53 if problem.dtype is DType.FP64 else 2.0**-24
    corners = []
    for chosen in product((False, True), repeat=len(around)):
        index = [each.second if last else each.first for each, last in zip(around, chosen, strict=True)]
        value = x[(*places[:2], *index)].double()
        corners.append((value, torch.zeros_like(value)))
    for each in reversed(around):
        corners = [each.mean(*pair, unit) for pair in zip(corners[::2], corners[1::2], strict=True)]
    ((value, error),) = corners
    # An infinity or NaN is either right or wrong.
    return value, torch.where(value.isfinite() & ~error.isnan(), error, 0.0)


class _Around:
    """The two input pixels around each output position along one dimension, and the weight of the second."""

    def __init__(self, position: Tensor, size: int, *, stays: bool, exact: Tensor) -> None:
        self.first = position.floor().long().clamp(0, size - 1)
        self.second = self.first if stays else (self.first + 1).clamp_max(size - 1)
        self.weight = position - self.first
        self._position = exact

    @classmethod
    def of(cls, problem: ResizeProblem, dim: int, place: Tensor) -> _Around:
        """Positions are rounded once: PyTorch multiplies and subtracts in one instruction. If the size stays the same,
        both pixels are the same."""
        (size, out), step = problem.sizes[dim], problem.steps[dim]
        exact = (step * (place.double() + problem.shift) - problem.shift).clamp_min(0.0)
        position = exact.float().double() if problem.positions_in is DType.FP32 else exact
        if problem.interpolation is Interpolation.NEAREST:
            position = position.clamp_max(size - 1)
        return cls(position, size, stays=size == out, exact=exact)

    def mean(self, one: Pair, other: Pair, unit: float) -> Pair:
        """The mean of values at the first and second pixels. Rounding a position moves the result along the slope."""
        (first, first_error), (second, second_error) = one, other
        rest = 1.0 - self.weight
        value = rest * first + self.weight * second
        error = rest * first_error + self.weight * second_error
        error = error + _ROUNDINGS * unit * (rest * first.abs() + self.weight * second.abs())
        return value, error + unit * (1.0 + self._position) * (second - first).abs()
