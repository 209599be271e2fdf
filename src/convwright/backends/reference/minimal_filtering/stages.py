"""One of Winograd's transforms as matrix products, one spatial dimension after another."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from convwright.backends.reference.matmul import multiply
from convwright.backends.reference.minimal_filtering.transforms import Matrix
from convwright.core.dtype import DType
from convwright.core.tensor_spec import TensorSpec
from convwright.tensors import torch_dtype

Tensors = dict[str, Tensor]


class Stage:
    """Applies ``matrix`` along each of the first ``rank`` dimensions of a dense tensor (columns…, *rest).

    Each step needs its own buffer: ``specs`` has them in order, first the input, last the output. One product with the
    Kronecker power needs fewer buffers but more multiplications; for m = 4 it took twice as long on a CPU.
    """

    def __init__(self, name: str, matrix: Matrix, rank: int, rest: tuple[int, ...], dtype: DType) -> None:
        rows, columns = len(matrix), len(matrix[0])
        shapes = [(columns,) * (rank - done) + (rows,) * done + rest for done in range(rank + 1)]
        self.matrix, self.dtype = matrix, dtype
        self.specs = {f"{name}{done}": TensorSpec(shape, dtype) for done, shape in enumerate(shapes)}
        self.first, *_, self.last = self.specs
        self._on_device: dict[torch.device, Tensor] = {}

    def run(self, buffers: Tensors) -> Tensor:
        """Transform the content of the first buffer into the last, and return the last."""
        matrix = self._matrix(buffers[self.first].device)
        steps = [*pairwise(self.specs)]
        for axis, (source, target) in zip(reversed(range(len(steps))), steps, strict=True):
            _apply(matrix, buffers[source], axis, out=buffers[target])
        return buffers[self.last]

    @torch.inference_mode(False)  # the matrix outlives the call and must not be an inference tensor
    def _matrix(self, device: torch.device) -> Tensor:
        if device not in self._on_device:
            rows = [[float(entry) for entry in row] for row in self.matrix]
            self._on_device[device] = torch.tensor(rows, dtype=torch_dtype(self.dtype), device=device)
        return self._on_device[device]


def _apply(matrix: Tensor, source: Tensor, axis: int, *, out: Tensor) -> None:
    (rows, columns), before, after = matrix.shape, prod(source.shape[:axis]), prod(source.shape[axis + 1 :])
    stack = matrix.expand(before, rows, columns)
    multiply(stack, source.view(before, columns, after), out=out.view(before, rows, after))
