"""The float64 reference of a convolution at some hundred elements of its output, for quick checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from random import Random

import torch
from torch import Tensor

from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.exact import Pair, multiplied, with_epilogue
from convwright.measuring.checking.reference import Reference, readable

# A CPU gathers and multiplies about 50 products a microsecond in float64: 10 ms for one kind of data.
_MOST_PRODUCTS = {"cpu": 2**19, "cuda": 2**22}
_MOST, _FEWEST = 384, 16
# Additional elements on the rim of the output's images, if there is time for their products.
_MOST_RIM = 2048
# How many elements from each border, and around the middle, are examined.
_EDGE = 4

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Elements:
    """Single elements of an output: ``places[d]`` holds their positions along dimension ``d``.

    Of up to 384 elements, a third is at borders and in corners; a third around the middle, where the one infinity or
    NaN of such data has its effect, and where spreading it shows; and a third anywhere. In addition every position on
    the rim of an image is examined, each in a random image and channel; if sums are too long for that, an evenly spaced
    part of the rim.
    """

    places: tuple[Tensor, ...]

    @classmethod
    def of(cls, problem: ConvProblem, device: torch.device | str, *, seed: int = 0) -> Elements:
        """As many elements as the reference can compute in a few milliseconds. No sum is shortened."""
        return _elements(problem, torch.device(device), seed)

    def take(self, role: Role, tensor: Tensor) -> Tensor:
        """These elements of a tensor with the output's dimensions."""
        return tensor[tuple(place.long() for place in self.places)]


# Equal for all kinds of data: drawing them takes a millisecond.
@lru_cache(maxsize=4)
def _elements(problem: ConvProblem, device: torch.device, seed: int) -> Elements:
    shape, random = problem.output.shape, Random(seed)
    affordable = _MOST_PRODUCTS.get(device.type, _MOST_PRODUCTS["cpu"]) // max(problem.reduction, 1)
    count = min(_MOST, max(_FEWEST, affordable))
    rows = _at_borders(shape, random)[: -(-count // 3)] + _around_the_middle(problem, count // 3, random)
    rows += [_anywhere(shape, random) for _ in range(count - len(rows))]
    rows += _on_the_rim(shape, min(affordable - count, _MOST_RIM), random)
    if not problem.output.numel:
        rows = []
    return Elements(tuple(torch.tensor([row[dim] for row in rows], device=device) for dim in range(len(shape))))


def sampled_convolution(problem: ConvProblem, tensors: Mapping[Role, Tensor], *, seed: int = 0) -> Reference:
    """The reference at ``Elements``, computed where the operands are.

    >>> from convwright.measuring.checking.data import operands
    >>> problem = ConvProblem.parse("mb8ic64ih56oc64kh3ph1")
    >>> sampled_convolution(problem, operands(problem, "normal", "cpu")).y64.shape
    torch.Size([604])
    """
    direction = problem.direction
    tensors = {role: readable(tensor) for role, tensor in tensors.items()}
    device = tensors[direction.operands[0]].device
    elements = Elements.of(problem, device, seed=seed)
    places = [place.long() for place in elements.places]
    step = max(1, _MOST_PRODUCTS.get(device.type, _MOST_PRODUCTS["cpu"]) // max(problem.reduction, 1))
    parts = [[place[i : i + step] for place in places] for i in range(0, len(places[0]), step)]
    pairs = _pairs(problem, tensors)
    sums = [_sums(problem, pairs, part) for part in parts]
    empty = torch.zeros(0, dtype=torch.float64, device=device)
    y64, scale = (torch.cat([each[which] for each in sums] or [empty]) for which in (0, 1))
    y64, scale = with_epilogue(problem, y64, scale, dict(_taken(problem, tensors, elements)))
    return Reference(problem, elements, y64, scale, direction.output, Reference.of_bias(problem, tensors))


def _pairs(problem: ConvProblem, tensors: Mapping[Role, Tensor]) -> tuple[Pair, Pair | None]:
    """The operands to multiply, and those whose products scale the errors, if they are not the same magnitudes."""
    if problem.epilogue and problem.direction is not Direction.FORWARD:
        return multiplied(problem, tensors)
    first, second = problem.direction.operands
    return (tensors[first], tensors[second]), None


def _sums(problem: ConvProblem, pairs: tuple[Pair, Pair | None], places: Sequence[Tensor]) -> Pair:
    """The sum of products at each element, and the sum of their magnitudes."""
    terms, (given, scaled) = _TERMS[problem.direction], pairs
    a, b = terms(problem, *given, places)
    products = (a * b).flatten(1)
    if scaled is None:
        return products.sum(1), products.abs().sum(1)
    c, d = terms(problem, *scaled, places)
    return products.sum(1), (c * d).flatten(1).sum(1)


def _taken(problem: ConvProblem, tensors: Mapping[Role, Tensor], elements: Elements) -> Iterable[tuple[Role, Tensor]]:
    """The epilogue's operands at the elements."""
    for role in (Role.RESIDUAL, Role.BEFORE):
        if role in tensors:
            yield role, elements.take(role, tensors[role]).double()
    for role in (Role.SCALE, Role.BIAS):
        if role in tensors and problem.direction is Direction.FORWARD:
            yield role, tensors[role][elements.places[1].long()].double()


# The operands to multiply, one row per element of the output: (elements, channels or images, positions…).


def _forward(problem: ConvProblem, x: Tensor, w: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    n, k, *p = places
    size = problem.c // problem.groups
    channels = _range(size, k) + (k // (problem.k // problem.groups) * size)[:, None]
    outer = n[:, None] * x.stride(0) + channels * x.stride(1)
    inputs = [
        out[:, None] * axis.stride + _range(axis.taps, out) * axis.dilation - axis.pad[0]
        for out, axis in zip(p, problem.axes, strict=True)
    ]
    return _gathered(x, outer, inputs), _turned(problem, w[k].double())


def _backward_data(problem: ConvProblem, dy: Tensor, w: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    n, c, *h = places
    size, groups = problem.k // problem.groups, problem.groups
    group = c // (problem.c // groups)
    channels = _range(size, c) + (group * size)[:, None]
    outer = n[:, None] * dy.stride(0) + channels * dy.stride(1)
    outputs = []
    for place, axis in zip(h, problem.axes, strict=True):
        reached = place[:, None] + axis.pad[0] - _range(axis.taps, place) * axis.dilation
        outputs.append(torch.where(reached % axis.stride == 0, reached // axis.stride, -1))
    grouped = w.as_strided((groups, size, *w.shape[1:]), (size * w.stride(0), *w.stride()))
    weights = grouped[group, :, c % (problem.c // groups)].double()
    return _gathered(dy, outer, outputs), _turned(problem, weights)


def _backward_weight(problem: ConvProblem, x: Tensor, dy: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    k, c, *taps = places
    channel = c + k // (problem.k // problem.groups) * (problem.c // problem.groups)
    outer = _range(problem.n, k) * x.stride(0) + (channel * x.stride(1))[:, None]
    inputs = []
    for tap, axis in zip(taps, problem.axes, strict=True):
        place = axis.taps - 1 - tap if problem.flip else tap
        inputs.append(_range(axis.out, tap) * axis.stride + (place * axis.dilation)[:, None] - axis.pad[0])
    return _gathered(x, outer, inputs), dy.transpose(0, 1)[k].double()


_TERMS = {
    Direction.FORWARD: _forward,
    Direction.BACKWARD_DATA: _backward_data,
    Direction.BACKWARD_WEIGHT: _backward_weight,
}


def _range(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)[None]


def _gathered(tensor: Tensor, outer: Tensor, places: Sequence[Tensor]) -> Tensor:
    """``tensor`` in float64 at offsets ``outer`` and all combinations of spatial positions.

    Positions outside of the tensor are padding: 0.
    """
    rank = len(places)
    index, inside = outer.reshape(*outer.shape, *[1] * rank), torch.ones((), dtype=torch.bool, device=tensor.device)
    for dim, place in enumerate(places, start=2):
        along = place.reshape(place.shape[0], *[1] * (dim - 1), place.shape[1], *[1] * (rank + 1 - dim))
        index = index + along.clamp(0, tensor.shape[dim] - 1) * tensor.stride(dim)
        inside = inside & (along >= 0) & (along < tensor.shape[dim])
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span if tensor.numel() else 0,), (1,))
    return torch.where(inside, flat[index], 0.0).double()


def _turned(problem: ConvProblem, w: Tensor) -> Tensor:
    return w.flip(tuple(range(2, w.dim()))) if problem.flip else w


# Where to look.


def _at_borders(shape: Position, random: Random) -> list[Position]:
    """First the corners and edges of an image, in the outermost images and channels; then positions near a border."""
    ends = [
        (random.choice((0, shape[0] - 1)), random.choice((0, shape[1] - 1)), *spatial)
        for spatial in product(*((0, size // 2, size - 1) for size in shape[2:]))
    ]
    close = [
        (*_anywhere(shape[:dim], random), place, *_anywhere(shape[dim + 1 :], random))
        for dim, size in enumerate(shape)
        for edge in range(min(_EDGE, size))
        for place in (edge, size - 1 - edge)
    ]
    return random.sample(ends, len(ends)) + random.sample(close, len(close))


def _on_the_rim(shape: Position, most: int, random: Random) -> list[Position]:
    """The outermost positions of an image, each in a random image and channel: all, or an evenly spaced part."""
    count = _rim_count(shape[2:]) if most > 0 and 0 not in shape else 0
    step = max(-(-count // max(most, 1)), 1)
    places = _rim(shape[2:], torch.arange(0, count, step, device="cpu"))
    images, channels = (random.choices(range(max(size, 1)), k=-(-count // step)) for size in shape[:2])
    return list(zip(images, channels, *(place.tolist() for place in places), strict=True))


def _rim_count(sizes: Position) -> int:
    return prod(sizes) - prod(max(size - 2, 0) for size in sizes)


def _rim(sizes: Position, which: Tensor) -> list[Tensor]:
    """The positions, numbered in order, that are first or last in any dimension; those numbered by ``which``.

    The time does not depend on the size of the image.
    """
    if not sizes:
        return []
    size, rest = sizes[0], sizes[1:]
    face, slice_rim = prod(rest), _rim_count(rest)
    at_first, beyond = which < face, which - face
    slices = max(size - 2, 0) * slice_rim
    at_last = ~at_first & (beyond >= slices)
    per_slice = max(slice_rim, 1)
    position = (1 + beyond // per_slice).masked_fill(at_first, 0).masked_fill(at_last, size - 1)
    on_face = _unravelled(rest, torch.where(at_first, which, beyond - slices))
    between = _rim(rest, beyond % per_slice)
    return [position, *map(torch.where, [at_first | at_last] * len(rest), on_face, between)]


def _unravelled(sizes: Position, which: Tensor) -> list[Tensor]:
    """The positions numbered by ``which``. PyTorch's own function would first load sympy, which takes 0.2 s."""
    places: list[Tensor] = []
    for size in reversed(sizes):
        places.insert(0, which % size)
        which = which // size
    return places


def _around_the_middle(problem: ConvProblem, count: int, random: Random) -> list[Position]:
    """Positions around the outputs that read the middle of the first operand, in its image and channel group."""
    shape, groups = problem.output.shape, problem.groups
    if problem.direction is Direction.BACKWARD_WEIGHT:
        group, inner = divmod(problem.c // 2, problem.c // groups)
        size = problem.k // groups
        return [(group * size + random.randrange(size), inner, *_anywhere(shape[2:], random)) for _ in range(count)]
    forward = problem.direction is Direction.FORWARD
    channels, fed = (problem.c, problem.k // groups) if forward else (problem.k, problem.c // groups)
    group = channels // 2 // (channels // groups)
    rows = []
    for _ in range(count):
        near = []
        for size, axis in zip(shape[2:], problem.axes, strict=True):
            radius = _EDGE + (axis.reach // axis.stride if forward else axis.reach + axis.stride)
            near.append(min(max(size // 2 + random.randint(-radius, radius), 0), size - 1))
        rows.append((problem.n // 2, group * fed + random.randrange(fed), *near))
    return rows


def _anywhere(shape: Position, random: Random) -> Position:
    return tuple(random.randrange(max(size, 1)) for size in shape)
