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

# The first and the last step that needs a buffer: step 0 makes the columns, step 1 uses them up.
_LIVES = {
    Direction.FORWARD: {"padded": (0, 0), "columns": (0, 1), "y": (1, 1)},
    Direction.BACKWARD_DATA: {"y": (0, 0), "columns": (0, 1), "padded": (1, 1)},
    Direction.BACKWARD_WEIGHT: {"padded": (0, 0), "columns": (0, 1), "y": (1, 1), "w": (1, 1)},
}


class Matrices:
    """Operands of a problem seen as matrices, and the buffers for those that cannot be seen so where they lie."""

    def __init__(self, problem: ConvProblem) -> None:
        groups = problem.groups
        self.problem = problem
        self.rows, self.channels = problem.k // groups, problem.c // groups
        self.positions = (problem.n, *problem.y.shape[2:])
        products, outputs = self.channels * prod(problem.taps), prod(self.positions)
        self.y_shape = (groups, self.rows, outputs)
        self.w_shape = (groups, self.rows, products)
        self.columns_shape = (groups, products, outputs)
        self.buffers = Buffers(self._needed(), _LIVES[problem.direction])

    def windows(self, x: Tensor) -> Tensor:
        """What each tap sees at each position: a view (G, C/G, taps…, N, positions…) of a padded input."""
        problem, (image, channel, *spatial) = self.problem, x.stride()
        steps = [dilation * stride for dilation, stride in zip(problem.dilation, spatial, strict=True)]
        jumps = [step * stride for step, stride in zip(problem.stride, spatial, strict=True)]
        return x.as_strided(
            (problem.groups, self.channels, *problem.taps, *self.positions),
            (self.channels * channel, channel, *steps, image, *jumps),
        )

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
        """A weight, windows or columns, all of which have the taps behind two other dimensions, with the taps first."""
        rank = self.problem.rank
        return tensor.movedim(tuple(range(2, 2 + rank)), tuple(range(rank)))

    def _needed(self) -> dict[str, TensorSpec]:
        """Only what the problem needs. Folding back adds up in fp32 at least."""
        problem, folds = self.problem, self.problem.direction is Direction.BACKWARD_DATA
        half = problem.dtype in (DType.FP16, DType.BF16)
        padded = [size + low + high for size, (low, high) in zip(problem.x.shape[2:], problem.padding, strict=True)]
        columns = (problem.groups, self.channels, *problem.taps, *self.positions)
        needed = {"columns": TensorSpec(columns, problem.dtype)}
        if padded != [*problem.x.shape[2:]] or (folds and half):
            dtype = DType.FP32 if folds and half else problem.dtype
            needed["padded"] = TensorSpec((problem.n, problem.c, *padded), dtype)
        if not is_matrix(problem.y, 1, self.rows):
            needed["y"] = TensorSpec((problem.groups, self.rows, *self.positions), problem.dtype)
        if problem.direction is Direction.BACKWARD_WEIGHT and (problem.flip or not is_matrix(problem.w, 0, self.rows)):
            needed["w"] = TensorSpec(problem.w.shape, problem.dtype)
        return needed


def is_matrix(spec: TensorSpec, row: int, rows: int) -> bool:
    """True where ``rows`` of dimension ``row`` by all other dimensions, taken as one, can be multiplied as they lie."""
    if spec.numel == 0:
        return True
    dims = [*zip(spec.shape, spec.strides, strict=True)]
    _, row_stride = dims.pop(row)
    dims = [(size, stride) for size, stride in dims if size > 1] or [(1, 1)]
    if any(outer != size * inner for (_, outer), (size, inner) in pairwise(dims)):
        return False
    columns, column_stride = prod(size for size, _ in dims), dims[-1][1]
    return (column_stride == 1 and row_stride >= columns) or (row_stride == 1 and column_stride >= rows)
