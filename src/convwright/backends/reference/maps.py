"""The maps of ``reference/kn2row``: the products of each tap with each pixel, or the gradients that each tap reads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from torch import Tensor

from convwright.backends.reference.buffers import Buffers
from convwright.backends.reference.matrices import is_matrix, merged
from convwright.backends.reference.operands import wide
from convwright.backends.reference.taps import Tap, taps
from convwright.core.direction import Direction
from convwright.core.once import once
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides

# Small images are taken together up to so many bytes of maps, which stay in the processor's cache until they are added.
_MAPS_BYTES = 16 << 20


class Maps:
    """The maps of a few images at a time and the operands of their products, as stacks of matrices: over images if
    there is one group, else over the groups of one image."""

    def __init__(self, problem: ConvProblem) -> None:
        self.problem, self.dtype = problem, wide(problem.dtype)
        self.groups, self.rows = problem.groups, problem.k // problem.groups
        self.count, self.spatial = prod(problem.taps), problem.x.shape[2:]
        image = (self.groups, self.count, self.rows, *self.spatial)
        each = prod(image) * self.dtype.nbytes
        self.images = max(min(problem.n, _MAPS_BYTES // each), 1) if self.groups == 1 else 1
        self.x_lies = self.dtype is problem.dtype and self._lies(problem.x)
        self.buffers = self._buffers((self.images, *image))

    @once
    def taps(self) -> tuple[tuple[int, Tap], ...]:
        """All taps that read the input, each with its index among the maps."""
        found = taps(self.problem)  # there may be thousands, and an offer needs none
        return tuple((_place(tap.stored, self.problem.taps), tap) for tap in found)

    def parts(self) -> Iterator[slice]:
        """Slices of all images, one slice for each filling of the maps."""
        n = self.problem.n
        return (slice(first, min(first + self.images, n)) for first in range(0, n, self.images))

    def of(self, images: Tensor, weight: Tensor) -> Tensor:
        """The packed weight, once for each matrix of the stack."""
        return weight.expand(images.shape[0] * self.groups, -1, -1)

    def by_place(self, maps: Tensor) -> Iterator[tuple[Tensor, Tap]]:
        """The map of each tap that reads the input: (images, G, K / G, spatial…)."""
        return ((maps[:, :, place], tap) for place, tap in self.taps)

    def stack(self, tensor: Tensor) -> Tensor:
        """Images, or maps of them, as matrices: all rows of a group by all pixels."""
        image, row = tensor.stride()[:2]
        pixel = merged([*zip(self.spatial, tensor.stride()[-len(self.spatial) :], strict=True)])
        assert pixel is not None
        rows = tensor.shape[1] // self.groups
        shape = tensor.shape[0], self.groups, rows, prod(self.spatial)
        return tensor.as_strided(shape, (image, rows * row, row, pixel)).flatten(0, 1)

    def maps_as_stack(self, maps: Tensor) -> Tensor:
        return maps.view(maps.shape[0] * self.groups, self.count * self.rows, prod(self.spatial))

    def _lies(self, spec: TensorSpec) -> bool:
        """Whether each image of a tensor is a stack of matrices in memory."""
        _, channel, *steps = spec.strides
        one = TensorSpec((1, spec.shape[1] // self.groups, *self.spatial), self.dtype, (0, channel, *steps))
        return is_matrix(one, 1, one.shape[1])

    def _buffers(self, maps: tuple[int, ...]) -> Buffers:
        problem, direction = self.problem, self.problem.direction
        specs = {"maps": TensorSpec(maps, self.dtype)}
        if not self.x_lies:
            specs["x"] = TensorSpec((self.images, *problem.x.shape[1:]), self.dtype)
        if direction is Direction.BACKWARD_WEIGHT:
            specs["w"] = TensorSpec((self.groups, self.count * self.rows, problem.w.shape[1]), self.dtype)
        if direction is Direction.FORWARD and self.dtype is not problem.y.dtype:
            layout = Layout.NHWC if problem.y.layout is Layout.NHWC else Layout.NCHW
            specs["sums"] = TensorSpec(problem.y.shape, self.dtype, dense_strides(problem.y.shape, layout))
        return Buffers(specs, dict.fromkeys(specs, (0, 0)))


def _place(stored: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """The index of a tap; the last dimension varies fastest."""
    place = 0
    for position, count in zip(stored, counts, strict=True):
        place = place * count + position
    return place
