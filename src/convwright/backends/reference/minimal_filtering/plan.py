"""Winograd's convolution: transform tiles, multiply elementwise, transform back.

    forward, backward data    tiles → data · tiles, times filter · w, → resultᵀ · products → result
    backward weight           tiles → data · tiles, times result · dy, all tiles summed, → filterᵀ · products → dw

The products at one point, over channels and tiles, are one matrix product. All points and groups form one stack.
"""

from __future__ import annotations

from functools import partial
from math import prod

from torch import Tensor

from convwright.backends.reference.buffers import Buffers
from convwright.backends.reference.matmul import multiply
from convwright.backends.reference.minimal_filtering.stages import Stage, Tensors
from convwright.backends.reference.minimal_filtering.tiles import Tiles
from convwright.backends.reference.minimal_filtering.transforms import Transforms, mirrored, transposed
from convwright.backends.reference.operands import by_tap, wide
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.tensors import activate_, empty


class Winograd:
    """The tiles and transforms of one problem, in fp32 at least, and their buffers."""

    def __init__(self, problem: ConvProblem, transforms: Transforms) -> None:
        self.problem, self.tiles = problem, Tiles(problem, transforms.outputs)
        self.stack = transforms.points**problem.rank * problem.groups
        channels = self.tiles.image_channels, self.tiles.result_channels
        images, results = ((*self.tiles.shape, count) for count in channels)
        weights = (problem.groups, *channels)
        # Backward data mirrors the filter; so does a true convolution.
        mirror = problem.flip != (problem.direction is Direction.BACKWARD_DATA)
        filters = mirrored(transforms.filter) if mirror else transforms.filter
        stage = partial(Stage, rank=problem.rank, dtype=wide(problem.dtype))
        self.image = stage("image", transforms.data, rest=images)
        self.filter = stage("filter", filters, rest=weights)
        self.result = stage("result", transposed(transforms.result), rest=results)
        self.gradient = stage("gradient", transforms.result, rest=results)
        self.weight = stage("weight", transposed(filters), rest=weights)
        self.buffers = self._buffers()

    def _buffers(self) -> Buffers:
        """Buffers in the order in which they are filled. All but one are free once the next is full."""
        dtype = wide(self.problem.dtype)
        specs = {"padded": TensorSpec(self.tiles.padded_shape, dtype)} | self.image.specs
        if self.problem.direction is Direction.BACKWARD_WEIGHT:
            specs |= self.gradient.specs | self.weight.specs
            waits, until = self.image.last, self.weight.first
        else:
            specs |= self.result.specs
            if self.problem.epilogue.residual:
                specs["residual"] = specs[self.result.last]
            if self.problem.epilogue.bias:
                specs["bias"] = TensorSpec((self.problem.groups, self.tiles.result_channels), dtype)
            waits, until = self.result.last, [*specs][-1]
        filled = {name: step for step, name in enumerate(specs)}
        lives = {name: (step, step + 1) for name, step in filled.items()}
        lives[waits] = filled[waits], max(filled[waits], filled[until])
        return Buffers(specs, lives)


class WinogradPlan:
    """Runs ``reference/winograd`` with the matrices of ``transforms``."""

    writes_out = True

    def __init__(self, candidate: Candidate, transforms: Transforms) -> None:
        self.candidate = candidate
        self.problem = candidate.problem
        self.winograd = Winograd(candidate.problem, transforms)
        self.workspace_bytes = self.winograd.buffers.nbytes

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight's transform: a stack of matrices (image channels × result channels) per point and group."""
        stage = self.winograd.filter
        buffers = {name: empty(spec, weight.device) for name, spec in stage.specs.items()}
        buffers[stage.first].copy_(self._by_tap(weight))
        return self._stack(stage.run(buffers))

    def transform(self, numbers: Tensor) -> Tensor:
        tiles = self.winograd.tiles
        return numbers.view(self.winograd.stack, tiles.image_channels, tiles.result_channels)

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if out is None:
            out = empty(self.problem.output, first.device)
        buffers = self.winograd.buffers.of(workspace, first.device)
        points = self._image_points(first, buffers)
        if self.problem.direction is Direction.BACKWARD_WEIGHT:
            return self._backward_weight(points, second, out, buffers)
        multiply(points, second, out=self._stack(buffers[self.winograd.result.first]))
        result = self.winograd.result.run(buffers)
        self._epilogue(result, bias, residual, buffers)
        for part, tiled in self.winograd.tiles.pieces(out, result):
            part.copy_(tiled)
        return out

    def _image_points(self, image: Tensor, buffers: Tensors) -> Tensor:
        """The image's tiles, transformed: a stack of matrices (tiles × channels)."""
        tiles, stage = self.winograd.tiles, self.winograd.image
        tiles.fill(buffers["padded"], image)
        buffers[stage.first].copy_(tiles.windows(buffers["padded"]))
        return self._stack(stage.run(buffers))

    def _backward_weight(self, points: Tensor, dy: Tensor, dw: Tensor, buffers: Tensors) -> Tensor:
        gradient, weight = self.winograd.gradient, self.winograd.weight
        self._cut(dy, buffers[gradient.first])
        multiply(points.mT, self._stack(gradient.run(buffers)), out=self._stack(buffers[weight.first]))
        self._by_tap(dw).copy_(weight.run(buffers))
        return dw

    def _epilogue(self, result: Tensor, bias: Tensor | None, residual: Tensor | None, buffers: Tensors) -> None:
        """Apply the epilogue to the tiles, before they are rounded to the output's dtype.

        Operands are copied first. If they were added directly, PyTorch would allocate a copy of each with another
        dtype.
        """
        if residual is not None:
            result.add_(self._cut(residual, buffers["residual"]))
        if bias is not None:
            wide_bias = buffers["bias"].copy_(bias.view_as(buffers["bias"]))
            result.add_(wide_bias.view(wide_bias.shape[0], *[1] * (result.dim() - self.problem.rank - 2), -1))
        activate_(result, self.problem.epilogue.activation)

    def _cut(self, result: Tensor, tiled: Tensor) -> Tensor:
        """Copy a tensor with the result's shape into tiles, with zeros outside it."""
        if not self.winograd.tiles.fit:
            tiled.zero_()
        for part, tile in self.winograd.tiles.pieces(result, tiled):
            tile.copy_(part)
        return tiled

    def _by_tap(self, weight: Tensor) -> Tensor:
        """A weight as a view (taps…, G, image channels, result channels)."""
        view = by_tap(weight, self.problem.groups)
        return view if self.problem.direction is Direction.BACKWARD_DATA else view.mT

    def _stack(self, points: Tensor) -> Tensor:
        """Points, groups and all other dimensions before the channels, as one stack of matrices."""
        _, *between, channels = points.shape[self.problem.rank :]
        return points.view(self.winograd.stack, prod(between), channels)
