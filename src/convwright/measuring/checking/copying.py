"""The float64 reference of a copy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from convwright.core.kinds.copy import CopyProblem
from convwright.measuring.checking.parts import MOST_ELEMENTS, Points, Slices
from convwright.measuring.checking.reference import Reference, readable

# Bytes in float64 that a device moves in a microsecond: a rough estimate.
_BYTES_PER_US = {"cpu": 2e3, "cuda": 5e5}


def whole(problem: CopyProblem, tensors: Mapping[str, Tensor]) -> Reference:
    """Computed where the input is; on slices if the whole would take too much memory."""
    part = Slices.of(problem.y.shape)
    device, rank = tensors["x"].device, len(part.kept)
    places = [
        torch.tensor(kept, dtype=torch.int64, device=device).reshape([-1 if each == dim else 1 for each in range(rank)])
        for dim, kept in enumerate(part.kept)
    ]
    return _reference(problem, tensors["x"], part, places)


def sampled(problem: CopyProblem, tensors: Mapping[str, Tensor], *, seed: int = 0) -> Reference:
    """The same on single elements."""
    part = Points.of(problem.y.shape, tensors["x"].device, seed=seed)
    return _reference(problem, tensors["x"], part, list(part.places))


def whole_us(problem: CopyProblem, device: torch.device) -> float:
    """A rough upper bound for the time of a whole reference."""
    rate = _BYTES_PER_US.get(device.type, _BYTES_PER_US["cpu"])
    return 8 * 4 * min(problem.y.numel, MOST_ELEMENTS) / rate


def _reference(problem: CopyProblem, x: Tensor, part: Slices | Points, places: list[Tensor]) -> Reference:
    """For positions in the output: whether they are in the input, and the value there; others are zero."""
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    index = []
    for place, (before, _), size in zip(places, problem.margins, problem.x.shape, strict=True):
        at = place - before
        inside = inside & (at >= 0) & (at < size)
        index.append(at.clamp(0, max(size - 1, 0)))
    if x.numel():
        y64 = torch.where(inside, readable(x)[tuple(index)].double(), 0.0)
    else:
        y64 = torch.zeros(part.shape, dtype=torch.float64, device=x.device)
    y64 = y64.expand(part.shape)
    return Reference(problem, part, y64, y64.abs(), problem.outputs[-1])
