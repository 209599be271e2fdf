"""Parts of an output to check, for problems with broadcast operands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random

import torch
from torch import Tensor

from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.measuring.checking.plain_data import middle
from convwright.torch_operators import in_groups

# A float64 reference of more elements than this covers slices only.
MOST_ELEMENTS = 2**23
# The number of elements in a quick check: corners and the middle first, then others.
_POINTS, _CORNERS = 2048, 256
# If rows are reduced: the number of elements, and the fewest rows.
_ELEMENTS_OF_ROWS, _FEWEST_ROWS = 2**17, 16


@dataclass(frozen=True, slots=True)
class Slices:
    """Some indices along each dimension, evenly spaced, with the first, the middle and the last."""

    kept: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], most: int = MOST_ELEMENTS, *, row: tuple[int, ...] = ()) -> Slices:
        """All of a shape, or slices with at most ``most`` elements, complete along the dimensions ``row``."""
        share = min(1.0, most / max(_count(shape), 1))
        kept = []
        for dim, size in enumerate(shape):
            some = tuple(range(size)) if dim in row else _spread(size, share)
            share *= max(size, 1) / max(len(some), 1)
            kept.append(some)
        return cls(tuple(kept))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output's part."""
        return tuple(map(len, self.kept))

    def take(self, role: str, tensor: Tensor) -> Tensor:
        """The same part of an operand, which may be broadcast."""
        for dim, kept in enumerate(self.kept):
            if tensor.shape[dim] != 1 and len(kept) != tensor.shape[dim]:
                tensor = tensor.index_select(dim, torch.tensor(kept, device=tensor.device))
        return tensor


@dataclass(frozen=True, slots=True)
class Points:
    """Single elements: ``places[d]`` holds their positions along dimension ``d``."""

    places: tuple[Tensor, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], device: torch.device, *, seed: int = 0, most: int = _POINTS) -> Points:
        """About ``most`` points: corners, the middle (with the one infinity or NaN) and its neighbours, and others."""
        return _points(shape, device, seed, min(most, _POINTS))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output's part."""
        return (len(self.places[0]),)

    def take(self, role: str, tensor: Tensor) -> Tensor:
        """The same elements of an operand, which may be broadcast."""
        sizes = zip(self.places, tensor.shape, strict=True)
        return tensor[tuple(place if size != 1 else torch.zeros_like(place) for place, size in sizes)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Single rows of ``shape``: points along all dimensions except ``row``, and all elements along those."""

    points: Points
    whole: tuple[int, ...]
    row: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], row: tuple[int, ...], device: torch.device, *, seed: int = 0) -> Rows:
        """About as many elements as for points, but at least a few rows."""
        ends = tuple(1 if dim in row else size for dim, size in enumerate(shape))
        most = max(_ELEMENTS_OF_ROWS // max(_count(shape) // max(_count(ends), 1), 1), _FEWEST_ROWS)
        return cls(Points.of(ends, device, seed=seed, most=most), shape, row)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an operand's part with whole rows: the first dimension counts rows."""
        return (*self.points.shape, *(self.whole[dim] for dim in self.row))

    def take(self, role: str, tensor: Tensor) -> Tensor:
        """The same rows of an operand, which may be broadcast."""
        index = []
        for dim, (place, size) in enumerate(zip(self.points.places, tensor.shape, strict=True)):
            if dim in self.row:
                at = 1 + self.row.index(dim)
                along = torch.arange(size, device=place.device)
                index.append(along.reshape([-1 if each == at else 1 for each in range(1 + len(self.row))]))
            else:
                place = place if size != 1 else torch.zeros_like(place)
                index.append(place.reshape(-1, *[1] * len(self.row)))
        return tensor[tuple(index)]


@dataclass(frozen=True, slots=True)
class InGroups:
    """A part of the operands in the form without groups, for a problem with groups."""

    problem: PointwiseProblem
    part: Slices | Rows

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output's part."""
        return self.part.shape

    def take(self, role: str, tensor: Tensor) -> Tensor:
        """The part of one operand."""
        return self.part.take(role, in_groups(self.problem, role, tensor))


@lru_cache(maxsize=4)
def _points(shape: tuple[int, ...], device: torch.device, seed: int, most: int) -> Points:
    random, centre = Random(seed), middle(shape)
    rows: list[tuple[int, ...]] = []
    if _count(shape):
        ends = list(product(*(sorted({0, size - 1}) for size in shape)))
        rows += [*random.sample(ends, min(len(ends), _CORNERS, most // 4)), centre]
        for dim, size in enumerate(shape):
            rows += [(*centre[:dim], near, *centre[dim + 1 :]) for near in _around(centre[dim], size)]
        rows += [tuple(random.randrange(size) for size in shape) for _ in range(max(most - len(rows), most // 2))]
    columns = zip(*rows, strict=True) if rows else ([] for _ in shape)
    return Points(tuple(torch.tensor(list(column), dtype=torch.int64, device=device) for column in columns))


def _around(place: int, size: int) -> list[int]:
    return [near for near in range(place - 4, place + 5) if 0 <= near < size]


def _spread(count: int, share: float) -> tuple[int, ...]:
    wanted = min(count, max(3, int(count * share)))
    if wanted == count:
        return tuple(range(count))
    return tuple(sorted({i * (count - 1) // (wanted - 1) for i in range(wanted)} | {count // 2}))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
