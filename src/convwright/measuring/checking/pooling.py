"""The float64 reference of pooling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import torch
from torch import Tensor

from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling
from convwright.measuring.checking.parts import Points, Slices
from convwright.measuring.checking.reference import Reference

# The most window elements that a reference reads: a CPU gathers about 50 in a microsecond.
_MOST_READ = {"cpu": 2**22, "cuda": 2**28}
_MOST_SAMPLED = {"cpu": 2**18, "cuda": 2**22}
_READ_PER_US = {"cpu": 50.0, "cuda": 5e3}
_FEWEST = 64
# How many of them at a time.
_AT_ONCE = 2**22


def whole(problem: PoolProblem, tensors: Mapping[str, Tensor]) -> Reference:
    """Computed where the input is; on slices if the whole would take too long."""
    x = tensors["x"]
    part = Slices.of(problem.y.shape, max(_most(_MOST_READ, x.device) // problem.reduction, _FEWEST))
    rank = len(part.kept)
    places = [
        torch.tensor(kept, dtype=torch.int64, device=x.device).reshape(
            [-1 if each == dim else 1 for each in range(rank)]
        )
        for dim, kept in enumerate(part.kept)
    ]
    return _reference(problem, x, part, places)


def sampled(problem: PoolProblem, tensors: Mapping[str, Tensor], *, seed: int = 0) -> Reference:
    """The same on single elements."""
    x = tensors["x"]
    most = max(_most(_MOST_SAMPLED, x.device) // problem.reduction, _FEWEST)
    part = Points.of(problem.y.shape, x.device, seed=seed, most=most)
    return _reference(problem, x, part, list(part.places))


def whole_us(problem: PoolProblem, device: torch.device) -> float:
    """A rough upper bound for the time of a whole reference."""
    read = min(problem.y.numel * problem.reduction, _most(_MOST_READ, device))
    return read / _READ_PER_US.get(device.type, _READ_PER_US["cpu"])


def _most(table: Mapping[str, int], device: torch.device) -> int:
    return table.get(device.type, table["cpu"])


def _reference(problem: PoolProblem, x: Tensor, part: Slices | Points, places: list[Tensor]) -> Reference:
    """For positions in the output. A maximum has no error; an average's errors are scaled by its magnitudes."""
    is_max = problem.pooling is Pooling.MAX
    result = torch.full(part.shape, -torch.inf if is_max else 0.0, dtype=torch.float64, device=x.device)
    scale = torch.zeros_like(result)
    if result.numel():
        for values in _windows(problem, x, part, places):
            if is_max:
                result = torch.maximum(result, values.amax(-1))
            else:
                result, scale = result + values.sum(-1), scale + values.abs().sum(-1)
    if is_max:
        return Reference(problem, part, result, result.abs(), problem.outputs[-1])
    counts = _counts(problem, places)
    return Reference(problem, part, result / counts, scale / counts, problem.outputs[-1])


def _windows(problem: PoolProblem, x: Tensor, part: Slices | Points, places: list[Tensor]) -> Iterator[Tensor]:
    """The elements of each window in the last dimension, in blocks."""
    missing = -torch.inf if problem.pooling is Pooling.MAX else 0.0
    at_once = max(_AT_ONCE // max(prod(part.shape), 1), 1)
    for first in range(0, problem.reduction, at_once):
        tap = torch.arange(first, min(first + at_once, problem.reduction), device=x.device)
        inside = torch.ones((), dtype=torch.bool, device=x.device)
        index = [place[..., None] for place in places[:2]]
        inner = problem.reduction
        for place, axis in zip(places[2:], problem.axes, strict=True):
            inner //= axis.taps
            at = place[..., None] * axis.stride - axis.pad[0] + tap // inner % axis.taps * axis.dilation
            inside = inside & (at >= 0) & (at < axis.size)
            index.append(at.clamp(0, axis.size - 1))
        yield torch.where(inside, x[tuple(index)].double(), missing)


def _counts(problem: PoolProblem, places: list[Tensor]) -> Tensor:
    """The divisors of sums. Counted padding has the same size before and after the image."""
    if problem.divisor is not None:
        return places[0].new_full((), problem.divisor)
    counts = places[0].new_ones(())
    for place, axis in zip(places[2:], problem.axes, strict=True):
        margin = axis.pad[0] if problem.includes_padding else 0
        start = place * axis.stride - axis.pad[0]
        counts = counts * ((start + axis.taps).clamp(max=axis.size + margin) - start.clamp(min=-margin))
    return counts
