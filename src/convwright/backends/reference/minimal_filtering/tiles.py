"""Winograd's tiles: tiles of the image overlap by 2, tiles of the result do not.

With dilation d, every d-th element belongs to the same dense image. The tiles of all dense images are stored together:
a tile has an index in its dense image, and the index of that image is its phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from convwright.backends.reference.minimal_filtering.transforms import TAPS
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the result along one dimension that is a block of (tile, output of the tile, phase), in this order."""

    start: int
    tile: int
    output: int
    shape: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TiledAxis:
    """One spatial dimension: a correlation of ``size`` elements, the first at position ``low``, with ``results``
    results.

    If ``low`` is negative, the first elements of the image are skipped, since only gradients of padding need them.

    >>> TiledAxis(outputs=4, size=14, low=1, results=14, dilation=1).tiles
    4
    """

    outputs: int
    size: int
    low: int
    results: int
    dilation: int

    @property
    def phases(self) -> int:
        """The number of dense images, without those that give no result."""
        return min(self.dilation, self.results)

    @property
    def tiles(self) -> int:
        """Tiles of each dense image."""
        return -(-self.results // (self.outputs * self.dilation))

    @property
    def length(self) -> int:
        """Elements that all tiles together read."""
        return (self.tiles * self.outputs + TAPS - 2) * self.dilation + self.phases

    @property
    def used(self) -> range:
        """Elements of the image from the first to the last that some result needs."""
        stop = self.results + (TAPS - 1) * self.dilation - self.low
        return range(max(-self.low, 0), min(self.size, stop))

    def pieces(self) -> Iterator[Piece]:
        """The result cut at the ends of tiles: all full tiles, full rounds of the phases, and the remainder."""
        tile, rest = divmod(self.results, self.outputs * self.dilation)
        output, phases = divmod(rest, self.dilation)
        if tile:
            yield Piece(0, 0, 0, (tile, self.outputs, self.dilation))
        if output:
            yield Piece(self.results - rest, tile, 0, (1, output, self.dilation))
        if phases:
            yield Piece(self.results - phases, tile, output, (1, 1, phases))


class Tiles:
    """The tiles of a problem: of ``x`` and ``y``, for backward data of ``dy`` and ``dx``.

    ``shape`` is (groups, images, then tiles and phases of each dimension); the channels follow.
    """

    def __init__(self, problem: ConvProblem, outputs: int) -> None:
        backward = problem.direction is Direction.BACKWARD_DATA
        image, result = (problem.y, problem.x) if backward else (problem.x, problem.y)
        lows = [axis.reach - 1 - axis.pad[0] if backward else axis.pad[0] for axis in problem.axes]
        dims = zip(image.shape[2:], lows, result.shape[2:], problem.dilation, strict=True)
        self.axes = tuple(TiledAxis(outputs, *dim) for dim in dims)
        self.image_channels, self.result_channels = image.shape[1] // problem.groups, result.shape[1] // problem.groups
        self.shape = (problem.groups, problem.n, *(v for axis in self.axes for v in (axis.tiles, axis.phases)))
        self.count = prod(self.shape[1:])
        self.padded_shape = (problem.n, *(axis.length for axis in self.axes), image.shape[1])
        self.fit = all(axis.results == axis.tiles * axis.outputs * axis.dilation for axis in self.axes)

    def fill(self, padded: Tensor, image: Tensor) -> None:
        """Copy an image into a buffer of ``padded_shape``, with zeros around it."""
        padded.zero_()
        inside = padded.movedim(-1, 1)
        for dim, axis in enumerate(self.axes, 2):
            inside = inside.narrow(dim, max(axis.low, 0), len(axis.used))
            image = image.narrow(dim, axis.used.start, len(axis.used))
        inside.copy_(image)

    def windows(self, padded: Tensor) -> Tensor:
        """The elements of the padded image that each tile reads: a view (elements of a tile…, *shape, channels)."""
        image, *spatial, channel = padded.stride()
        steps = [axis.dilation * stride for axis, stride in zip(self.axes, spatial, strict=True)]
        jumps = [(axis.outputs * step, stride) for axis, step, stride in zip(self.axes, steps, spatial, strict=True)]
        elements = [axis.outputs + TAPS - 1 for axis in self.axes]
        return padded.as_strided(
            (*elements, *self.shape, self.image_channels),
            (*steps, self.image_channels, image, *(stride for jump in jumps for stride in jump), channel),
        )

    def pieces(self, result: Tensor, tiled: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Parts of a result (N, K, spatial…) with the same parts of its tiles (outputs of a tile…, *shape, channels):
        pairs of views of equal shape that together cover the result."""
        rank = len(self.axes)
        result = torch.unflatten(result, 1, (self.shape[0], self.result_channels))
        spatial = [dim for axis in range(rank) for dim in (rank + 2 + 2 * axis, axis, rank + 3 + 2 * axis)]
        tiled = tiled.permute(rank + 1, rank, -1, *spatial)
        for pieces in product(*(axis.pieces() for axis in self.axes)):
            part, tiles = result, tiled
            for dim, piece in zip(range(3, 3 + 3 * rank, 3), pieces, strict=True):
                part = torch.unflatten(part.narrow(dim, piece.start, prod(piece.shape)), dim, piece.shape)
                for inner, (start, size) in enumerate(zip((piece.tile, piece.output, 0), piece.shape, strict=True)):
                    tiles = tiles.narrow(dim + inner, start, size)
            yield part, tiles
