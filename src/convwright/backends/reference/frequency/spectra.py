"""Fourier transforms of many planes, to and from the order in which spectra are multiplied: frequencies first.

A plane is one channel of one image. PyTorch's transforms allocate their results, so planes are transformed in blocks
that are small compared with the spectra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import torch
from torch import Tensor

from convwright.backends.reference.frequency.overlap import Cut, Line

Block = tuple[slice, slice, slice]

# Real elements in the tiles of a block: 4 MiB of fp32.
BLOCK_ELEMENTS = 2**20


class Spectra:
    """Transforms of the tiles of ``lines``. Spectra are (frequencies…, G, N, tiles…, channels / G)."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.rank = len(lines)
        self.lengths = [line.length for line in lines]
        self.frequencies = [*self.lengths[:-1], self.lengths[-1] // 2 + 1]

    def transform(self, planes: Tensor, cuts: Sequence[Cut], memory: Tensor, out: Tensor, *, conjugate: bool) -> None:
        """The spectra of ``planes`` (N, G, channels / G, positions…). ``memory`` is scratch for one block."""
        taken, put = after_leading(3, [cut.taken for cut in cuts]), after_leading(3, [cut.put for cut in cuts])
        for block in self._blocks(out):
            part = planes[block]
            shape = (*part.shape[:3], *(cut.extent for cut in cuts))
            tiles = memory[: prod(shape)].view(shape).zero_()
            tiles[put].copy_(part[taken])
            for dim, cut in enumerate(cuts, 3):
                tiles = tiles.unfold(dim, cut.window, cut.hop)
            spectra = torch.fft.rfftn(tiles, s=self.lengths, dim=[*range(-self.rank, 0)])
            self._of(block, out).copy_(spectra.conj() if conjugate else spectra)

    def inverse(self, spectra: Tensor) -> Iterator[tuple[Block, Tensor]]:
        """The tiles of each block of planes: (N, G, channels / G, tiles…, positions…)."""
        for block in self._blocks(spectra):
            yield block, torch.fft.irfftn(self._of(block, spectra), s=self.lengths, dim=[*range(-self.rank, 0)])

    def block_planes(self, shape: Sequence[int]) -> int:
        """The most planes that are transformed at once, for spectra of ``shape``."""
        return prod(self._block_sizes(shape))

    def _blocks(self, spectra: Tensor) -> Iterator[Block]:
        """Ranges of images, groups and channels."""
        groups, images, *_, channels = spectra.shape[self.rank :]
        sizes = self._block_sizes(spectra.shape)
        yield from product(*map(_ranges, (images, groups, channels), sizes))

    def _block_sizes(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """The most images, groups and channels of a block. Images are split first."""
        groups, images, *tiles, channels = shape[self.rank :]
        fitting = max(1, BLOCK_ELEMENTS // (prod(tiles) * prod(self.lengths)))
        per_channel = max(1, min(channels, fitting))
        per_group = max(1, min(groups, fitting // per_channel))
        return max(1, min(images, fitting // (per_channel * per_group))), per_group, per_channel

    def _of(self, block: Block, spectra: Tensor) -> Tensor:
        """A block of spectra, as a view with the images first and the frequencies last."""
        images, groups, channels = block
        rank = self.rank
        part = spectra[after_leading(rank, [groups, images, *[slice(None)] * rank, channels])]
        return part.permute(rank + 1, rank, -1, *range(rank + 2, 2 * rank + 2), *range(rank))


def joined(tiles: Tensor, lines: Sequence[Line]) -> Tensor:
    """(…, tiles…, positions…) joined to (…, outputs…), without the positions that wrapped around."""
    rank = len(lines)
    for dim, line in enumerate(lines, -rank):
        tiles = tiles.narrow(dim, 0, line.step)
    planes, dims = tiles.shape[: -2 * rank], range(tiles.dim() - 2 * rank, tiles.dim() - rank)
    order = [axis for dim in dims for axis in (dim, dim + rank)]
    whole = tiles.permute(*range(len(planes)), *order).reshape(*planes, *(line.count * line.step for line in lines))
    return whole[after_leading(len(planes), [slice(line.outputs) for line in lines])]


def after_leading(leading: int, last: Sequence[slice]) -> tuple[slice, ...]:
    """An index that takes all of ``leading`` dimensions, then ``last``."""
    return (*[slice(None)] * leading, *last)


def _ranges(size: int, each: int) -> list[slice]:
    return [slice(start, start + each) for start in range(0, size, each)]
