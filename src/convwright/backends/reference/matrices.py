"""The three matrices of a convolution, each a stack over groups: y (K/G × NP), w (K/G × CR), the columns (CR × NP)."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from torch import Tensor

from convwright.backends.reference.buffers import Buffers
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

Strides = tuple[int, int, int]

# The first and the last step that needs a buffer: step 0 fills the columns, step 1 reads them.
_LIVES = {
    Direction.FORWARD: {"padded": (0, 0), "columns": (0, 1), "y": (1, 1)},
    Direction.BACKWARD_DATA: {"y": (0, 0), "columns": (0, 1), "padded": (1, 1)},
    Direction.BACKWARD_WEIGHT: {"padded": (0, 0), "columns": (0, 1), "y": (1, 1), "w": (1, 1)},
}


class Matrices:
    """Operands of a problem as matrices, and buffers for those that are not matrices in memory."""

    def __init__(self, problem: ConvProblem) -> None:
        groups = problem.groups
        self.problem = problem
        self.rows, self.channels = problem.k // groups, problem.c // groups
        self.positions = (problem.n, *problem.y.shape[2:])
        products, outputs = self.channels * prod(problem.taps), prod(self.positions)
        self.y_shape = (groups, self.rows, outputs)
        self.w_shape = (groups, self.rows, products)
        self.columns_shape = (groups, products, outputs)
        self.columns_in_place = self._columns_in_place()
        self.y_in_place = self._y_in_place()
        self.by_image = self.columns_in_place is None and self._lie_by_image()
        self.unfolds = not (self.columns_in_place or self.by_image)
        self.buffers = Buffers({} if self.by_image else self._needed(), _LIVES[problem.direction])

    def windows(self, x: Tensor) -> Tensor:
        """The input of each tap at each position: a view (G, C/G, taps…, N, positions…) of a padded input."""
        problem, (image, channel, *spatial) = self.problem, x.stride()
        steps = [dilation * stride for dilation, stride in zip(problem.dilation, spatial, strict=True)]
        jumps = [step * stride for step, stride in zip(problem.stride, spatial, strict=True)]
        return x.as_strided(
            (problem.groups, self.channels, *problem.taps, *self.positions),
            (self.channels * channel, channel, *steps, image, *jumps),
        )

    def as_columns(self, x: Tensor) -> Tensor:
        """The input in place, if it has the form of its columns."""
        if self.by_image:
            return x.as_strided((self.problem.n, *self._image(x.shape)), (*x.stride()[:2], 1))
        assert self.columns_in_place is not None
        return x.as_strided(self.columns_shape, self.columns_in_place)

    def as_y(self, y: Tensor) -> Tensor:
        """The output in place, as a matrix."""
        if self.by_image:
            return y.as_strided((self.problem.n, *self._image(y.shape)), (*y.stride()[:2], 1))
        assert self.y_in_place is not None
        return y.as_strided(self.y_shape, self.y_in_place)

    def as_w(self, w: Tensor) -> Tensor:
        """The packed weight, once per product."""
        return w.expand(self.problem.n, -1, -1) if self.by_image else w

    def interior(self, padded: Tensor) -> Tensor:
        """The part of a padded input that is the input itself."""
        for dim, ((low, _), size) in enumerate(zip(self.problem.padding, self.problem.x.shape[2:], strict=True), 2):
            padded = padded.narrow(dim, low, size)
        return padded

    def by_group(self, y: Tensor) -> Tensor:
        """(N, K, positions…) as a view (G, K/G, N, positions…)."""
        images, *spatial = self.positions
        return y.view(images, self.problem.groups, self.rows, *spatial).movedim(0, 2)

    def by_tap(self, tensor: Tensor) -> Tensor:
        """A weight, windows or columns with the taps moved from dimension 2 to the front."""
        rank = self.problem.rank
        return tensor.movedim(tuple(range(2, 2 + rank)), tuple(range(rank)))

    def _columns_in_place(self) -> Strides | None:
        """The strides of the columns in the input: with one tap, or one position whose taps cover the whole input."""
        problem, spatial = self.problem, self.problem.x.shape[2:]
        one_position = self.positions[1:] == (1,) * problem.rank and problem.taps == spatial
        image, channel, *steps = problem.x.strides
        if any(map(any, problem.padding)):
            return None
        if self._has_one_tap():
            across = merged([(self.channels, channel)])
            along = merged([(problem.n, image), *zip(spatial, steps, strict=True)])
        elif one_position:
            across = merged([(self.channels, channel), *zip(spatial, steps, strict=True)])
            along = merged([(problem.n, image)])
        else:
            return None
        return _in_place(self.channels * channel, across, along, self.columns_shape)

    def _lie_by_image(self) -> bool:
        """Whether each image of x and y is a matrix in memory, for one tap and several images."""
        problem = self.problem
        if any(map(any, problem.padding)) or not self._has_one_tap():
            return False
        if problem.groups > 1 or problem.direction is Direction.BACKWARD_WEIGHT:
            return False
        positions = self._image(problem.y.shape)[1]
        along = [merged([*zip(spec.shape[2:], spec.strides[2:], strict=True)]) for spec in (problem.x, problem.y)]
        return along == [1, 1] and all(spec.strides[1] >= positions for spec in (problem.x, problem.y))

    def _has_one_tap(self) -> bool:
        return self.problem.taps == self.problem.stride == (1,) * self.problem.rank

    def _image(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return shape[1], prod(shape[2:])

    def _y_in_place(self) -> Strides | None:
        """The strides of y as a matrix in place."""
        image, channel, *steps = self.problem.y.strides
        along = merged([*zip(self.positions, (image, *steps), strict=True)])
        return _in_place(self.rows * channel, merged([(self.rows, channel)]), along, self.y_shape)

    def _needed(self) -> dict[str, TensorSpec]:
        """Only the buffers that the problem needs. Folding adds in fp32 at least."""
        problem, folds = self.problem, self.problem.direction is Direction.BACKWARD_DATA
        half = problem.dtype in (DType.FP16, DType.BF16)
        padded = [size + low + high for size, (low, high) in zip(problem.x.shape[2:], problem.padding, strict=True)]
        columns = (problem.groups, self.channels, *problem.taps, *self.positions)
        needed = {} if self.columns_in_place else {"columns": TensorSpec(columns, problem.dtype)}
        if not self.columns_in_place and (padded != [*problem.x.shape[2:]] or (folds and half)):
            dtype = DType.FP32 if folds and half else problem.dtype
            needed["padded"] = TensorSpec((problem.n, problem.c, *padded), dtype)
        if not self.y_in_place:
            needed["y"] = TensorSpec((problem.groups, self.rows, *self.positions), problem.dtype)
        if problem.direction is Direction.BACKWARD_WEIGHT and (problem.flip or not is_matrix(problem.w, 0, self.rows)):
            needed["w"] = TensorSpec(problem.w.shape, problem.dtype)
        return needed


def _in_place(group: int, across: int | None, along: int | None, shape: tuple[int, int, int]) -> Strides | None:
    """The strides of a stack of matrices, if these can be multiplied in place."""
    if across is None or along is None:
        return None
    _, rows, columns = shape
    return (group, across, along) if (along == 1 and across >= columns) or (across == 1 and along >= rows) else None


def merged(dims: list[tuple[int, int]]) -> int | None:
    """The stride of these dimensions, (size, stride) each, merged into one; None if they have no common stride.

    >>> merged([(2, 12), (3, 4), (4, 1)]), merged([(2, 24), (12, 1)]), merged([(1, 7)])
    (1, None, 1)
    """
    dims = [(size, stride) for size, stride in dims if size > 1] or [(1, 1)]
    if any(outer != size * inner for (_, outer), (size, inner) in pairwise(dims)):
        return None
    return dims[-1][1]


def is_matrix(spec: TensorSpec, row: int, rows: int) -> bool:
    """True if ``rows`` of dimension ``row`` by all other dimensions, merged, can be multiplied in place."""
    if spec.numel == 0:
        return True
    dims = [*zip(spec.shape, spec.strides, strict=True)]
    _, row_stride = dims.pop(row)
    columns = prod(size for size, _ in dims)
    return _in_place(0, row_stride, merged(dims), (1, rows, columns)) is not None
