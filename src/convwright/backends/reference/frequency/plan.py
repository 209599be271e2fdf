"""Convolution as a product of spectra, for ``reference/fft`` and ``reference/fft-tiled``.

At each frequency, for each group, with one row for each tile of each image:

    forward           Y  = X · conj(W)ᵀ
    backward data     dX = dY · conj(W),   with the filter mirrored
    backward weight   dW = conj(dY)ᵀ · X,  which adds up all tiles
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from convwright.backends.reference.frequency.fourier import Fourier
from convwright.backends.reference.frequency.overlap import Cut, Line
from convwright.backends.reference.frequency.pieces import Piece
from convwright.backends.reference.frequency.spectra import after_leading, joined
from convwright.backends.reference.matmul import multiply, multiply_add
from convwright.backends.reference.operands import by_group, epilogue_
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.tensors import empty, torch_dtype

Tensors = dict[str, Tensor]


class FourierPlan:
    """Runs a candidate whose dimensions are cut into the tiles of ``lines``.

    Pieces run one after another. The spectra are in the workspace; ``workspace_bytes`` also counts what PyTorch's
    transforms of one block allocate.
    """

    writes_out = True

    def __init__(self, candidate: Candidate, lines: Sequence[Line]) -> None:
        self.candidate = candidate
        self.problem = candidate.problem
        self.lines = tuple(lines)
        self.fourier = Fourier(candidate.problem, lines)
        self.spectra = self.fourier.spectra
        self.workspace_bytes = self.fourier.workspace_bytes

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight's conjugate spectra: (frequencies…, G, K / G, 1…, C / G)."""
        problem, fourier = self.problem, self.fourier
        if problem.flip is (problem.direction is Direction.FORWARD):
            weight = weight.flip([*range(2, weight.dim())])
        dtype = torch_dtype(fourier.dtype)
        cuts = [line.filter(*each) for line, *each in zip(self.lines, problem.taps, problem.dilation, strict=True)]
        elements = self.spectra.block_planes(fourier.w_shape) * prod(cut.extent for cut in cuts)
        memory = weight.new_empty(elements, dtype=dtype)
        packed = weight.new_empty(fourier.w_shape, dtype=dtype.to_complex())
        self.spectra.transform(self._filters(weight), cuts, memory, packed, conjugate=True)
        return packed

    def transform(self, numbers: Tensor) -> Tensor:
        return _view(numbers.view(-1, 2), self.fourier.w_shape)

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
        buffers = self.fourier.buffers.of(workspace, first.device)
        if self.problem.direction is Direction.BACKWARD_WEIGHT:
            return self._weight(first, second, out, buffers)
        for piece in self.fourier.pieces:
            spectra = self._multiplied(first, second, piece, buffers)
            self._image(spectra, piece, out, bias, residual)
        return out

    def _multiplied(self, source: Tensor, w: Tensor, piece: Piece, buffers: Tensors) -> Tensor:
        """The spectra of y or dx of one piece."""
        forward, fourier = self.problem.direction is Direction.FORWARD, self.fourier
        taken, given = (fourier.inputs, fourier.outputs) if forward else (fourier.outputs, fourier.inputs)
        spectra = _view(buffers["first"], fourier.image_shape(piece, taken))
        product = _view(buffers["product"], fourier.image_shape(piece, given))
        self._transform(source, piece, [line.source for line in piece.lines], buffers["tiles"], spectra)
        a, b, out = self._stack(spectra), self._stack(w), self._stack(product)
        b = b.mT if forward else b
        if taken == 1:  # each element is a single product, as in depthwise convolutions
            torch.mul(a, b, out=out)
        else:
            multiply(a, b, out=out)
        return product

    def _image(self, spectra: Tensor, piece: Piece, out: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
        """Write one piece of y or dx."""
        problem, groups = self.problem, self.problem.groups
        forward = problem.direction is Direction.FORWARD
        kept = after_leading(3, [slice(None, None, stride if forward else 1) for stride in problem.stride])
        bias = None if bias is None else bias.view(groups, -1)
        target = self._rows_of(by_group(out, groups), piece)
        residual = None if residual is None else self._rows_of(by_group(residual, groups), piece)
        for block, tiles in self.spectra.inverse(spectra):
            y = epilogue_(
                joined(tiles, piece.lines)[kept],
                None if bias is None else bias[block[1:]],
                None if residual is None else residual[block],
                problem.epilogue.activation,
            )
            target[block].copy_(y)

    def _rows_of(self, image: Tensor, piece: Piece) -> Tensor:
        """The part of an output (N, G, channels / G, positions…) that a piece computes."""
        first = piece.lines[0]
        return image[piece.images, :, :, first.skipped : first.skipped + first.outputs]

    def _weight(self, x: Tensor, dy: Tensor, dw: Tensor, buffers: Tensors) -> Tensor:
        """dw, the sum over all pieces."""
        fourier, tiles = self.fourier, buffers["tiles"]
        spectra = _view(buffers["product"], fourier.w_shape).zero_()
        for piece in fourier.pieces:
            a = _view(buffers["first"], fourier.image_shape(piece, fourier.inputs))
            b = _view(buffers["second"], fourier.image_shape(piece, fourier.outputs))
            strided = zip(piece.lines, dy.shape[2:], self.problem.stride, strict=True)
            beside = [line.beside(size, stride) for line, size, stride in strided]
            self._transform(x, piece, [line.source for line in piece.lines], tiles, a)
            self._transform(dy, piece, beside, tiles, b, conjugate=True)
            multiply_add(self._stack(b).mT, self._stack(a), out=self._stack(spectra))
        target, axes = self._filters(dw), self.problem.axes
        kept = after_leading(3, [slice(0, axis.reach, axis.dilation) for axis in axes])
        for block, filters in self.spectra.inverse(spectra):
            taps = filters.reshape(*filters.shape[:3], *self.spectra.lengths)[kept]
            target[block].copy_(taps.flip([*range(3, taps.dim())]) if self.problem.flip else taps)
        return dw

    def _transform(
        self, image: Tensor, piece: Piece, cuts: Sequence[Cut], tiles: Tensor, out: Tensor, *, conjugate: bool = False
    ) -> None:
        planes = by_group(image[piece.images], self.problem.groups)
        self.spectra.transform(planes, cuts, tiles, out, conjugate=conjugate)

    def _filters(self, weight: Tensor) -> Tensor:
        """(K, C / G, taps…) as a view (K / G, G, C / G, taps…)."""
        groups = self.problem.groups
        return weight.view(groups, self.problem.k // groups, *weight.shape[1:]).transpose(0, 1)

    def _stack(self, spectra: Tensor) -> Tensor:
        """One matrix for each frequency and group: a row for each tile of each image, a column for each channel."""
        rank = self.problem.rank
        shape = spectra.shape
        return spectra.view(prod(shape[: rank + 1]), prod(shape[rank + 1 : -1]), shape[-1])


def _view(pairs: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The beginning of a buffer as complex numbers."""
    return torch.view_as_complex(pairs[: prod(shape)]).view(shape)
