"""The right answer of a resize in float64."""

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

# Bytes in float64 that a CPU, or a GPU, moves in a microsecond: for reckoning, not for a table.
_BYTES_PER_US = {"cpu": 2e3, "cuda": 5e5}
_LARGE_EXPONENT_IN_FP64 = 400
# Two products and their sum are rounded, and a weight is a difference.
_ROUNDINGS = 4.0

# Value and absolute error.
Pair = tuple[Tensor, Tensor]


def values(problem: ResizeProblem, role: str, spec: TensorSpec, kind: Kind, generator: torch.Generator) -> Tensor:
    """Values of the input. In fp64 large ones are not so large that the squares of errors overflow, whose sum is
    compared."""
    drawn = plain_values(problem, role, spec, kind, generator)
    if kind is Kind.LARGE and spec.dtype is DType.FP64:
        return drawn * 2.0 ** (_LARGE_EXPONENT_IN_FP64 - LARGE_EXPONENT[DType.FP64])
    return drawn


def whole(problem: ResizeProblem, tensors: Mapping[str, Tensor]) -> Reference:
    """Computed where the input lies; on slices where the whole would take too much memory."""
    part = Slices.of(problem.y.shape, MOST_ELEMENTS // problem.reduction)
    return _reference(problem, tensors["x"], part, _along(part.kept, tensors["x"].device))


def sampled(problem: ResizeProblem, tensors: Mapping[str, Tensor], *, seed: int = 0) -> Reference:
    """The same on single elements."""
    part = Points.of(problem.y.shape, tensors["x"].device, seed=seed)
    return _reference(problem, tensors["x"], part, list(part.places))


def whole_us(problem: ResizeProblem, device: torch.device) -> float:
    """About how long a reference of the whole output takes at the most."""
    rate = _BYTES_PER_US.get(device.type, _BYTES_PER_US["cpu"])
    return 8 * 4 * problem.reduction * min(problem.y.numel, MOST_ELEMENTS // problem.reduction) / rate


def resized(problem: ResizeProblem, x: Tensor) -> Tensor:
    """All of the output in float64, whatever the input is stored in; positions are those of the problem."""
    value, _ = interpolated(problem, x, _along([range(size) for size in problem.y.shape], x.device))
    return value


def _along(kept: Sequence[Sequence[int]], device: torch.device) -> list[Tensor]:
    """Places along each dimension, which are broadcast to an output's."""
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
    """The output at these places along each of its dimensions, in float64, and the most by which a result may differ
    from it where each step is rounded."""
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
    # An infinity or a NaN is right or wrong.
    return value, torch.where(value.isfinite() & ~error.isnan(), error, 0.0)


class _Around:
    """The two pixels of the input around each place of the output along one dimension, and the second one's weight."""

    def __init__(self, position: Tensor, size: int, *, stays: bool, exact: Tensor) -> None:
        self.first = position.floor().long().clamp(0, size - 1)
        self.second = self.first if stays else (self.first + 1).clamp_max(size - 1)
        self.weight = position - self.first
        self._position = exact

    @classmethod
    def of(cls, problem: ResizeProblem, dim: int, place: Tensor) -> _Around:
        """A position is rounded once: PyTorch multiplies and subtracts in one instruction. Where the size stays, a
        pixel lies between itself and itself."""
        (size, out), step = problem.sizes[dim], problem.steps[dim]
        exact = (step * (place.double() + problem.shift) - problem.shift).clamp_min(0.0)
        position = exact.float().double() if problem.positions_in is DType.FP32 else exact
        if problem.interpolation is Interpolation.NEAREST:
            position = position.clamp_max(size - 1)
        return cls(position, size, stays=size == out, exact=exact)

    def mean(self, one: Pair, other: Pair, unit: float) -> Pair:
        """Of numbers at the first pixels and at the second ones. Rounding a position moves it along the slope."""
        (first, first_error), (second, second_error) = one, other
        rest = 1.0 - self.weight
        value = rest * first + self.weight * second
        error = rest * first_error + self.weight * second_error
        error = error + _ROUNDINGS * unit * (rest * first.abs() + self.weight * second.abs())
        return value, error + unit * (1.0 + self._position) * (second - first).abs()
