"""A convolution in the frequency domain, with tiles of any size: transforms and memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from convwright.backends.reference.buffers import Buffers
from convwright.backends.reference.frequency.overlap import Line
from convwright.backends.reference.frequency.pieces import Piece, Pieces
from convwright.backends.reference.frequency.spectra import Spectra
from convwright.backends.reference.operands import wide
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

# Step 0 computes the spectra of the operands, step 1 multiplies them, step 2 transforms back.
_LIVES = {"tiles": (0, 0), "first": (0, 1), "second": (0, 1), "product": (1, 2)}
# A weight's gradient is summed over all pieces.
_SUMMED_LIVES = _LIVES | {"product": (0, 2)}
# Spectra of images that are in memory together.
_PIECE_BYTES = 2**25
# The most that PyTorch's transforms allocate at once, in units of the spectra of one block.
_COPIES = 3
# The time in which CUDA's library links the kernels of a new size, once per process: 41 to 390 ms (H200).
_LINKS_US = 2e5


def lines(problem: ConvProblem) -> list[Line]:
    """The dimensions of the correlation, not yet cut into tiles.

    A stride skips outputs of the forward direction, and puts zeros between the elements of dy.
    """
    if problem.direction is Direction.BACKWARD_DATA:
        return [
            Line(axis.out, axis.stride, axis.reach - 1 - axis.pad[0], axis.size, axis.reach) for axis in problem.axes
        ]
    return [Line(axis.size, 1, axis.pad[0], (axis.out - 1) * axis.stride + 1, axis.reach) for axis in problem.axes]


def without_products(problem: ConvProblem) -> str | None:
    """Why no transform can compute a result with elements that are sums of no products; None if there are none. These
    elements must be 0, but a transform leaves rounding errors there."""
    if not problem.n or all(_is_met(axis, problem.direction) for axis in problem.axes):
        return None
    return (
        f"some results read only padding and must be exactly 0: an input of {problem.x.shape[2:]}, padded by "
        f"{problem.padding}, with strides of {problem.stride}"
    )


def _is_met(axis: Axis, direction: Direction) -> bool:
    """Whether all elements of the result along a dimension are sums of at least one product."""
    if direction is Direction.FORWARD:
        return axis.outputs_met() == axis.out
    return axis.touched() == axis.size if direction is Direction.BACKWARD_DATA else axis.taps_met() == axis.taps


def links_us(device: DeviceFacts) -> float:
    """The time in which a first run may load a library."""
    return _LINKS_US if device.kind == "cuda" else 0.0


class Fourier:
    """The transforms of one problem, cut into the tiles of ``lines``, and their buffers.

    Spectra of images have the shape (frequencies…, G, N, tiles…, channels / G), a weight's (frequencies…, G, K / G, 1…,
    C / G).
    """

    def __init__(self, problem: ConvProblem, lines: Sequence[Line]) -> None:
        self.problem = problem
        self.lines = tuple(lines)
        self.spectra = Spectra(lines)
        self.dtype = wide(problem.dtype)
        self.inputs, self.outputs = problem.c // problem.groups, problem.k // problem.groups
        self.pieces = self._pieces()
        ones = [1] * problem.rank
        self.w_shape = (*self.spectra.frequencies, problem.groups, self.outputs, *ones, self.inputs)
        summed = problem.direction is Direction.BACKWARD_WEIGHT
        self.buffers = Buffers(self._specs(), _SUMMED_LIVES if summed else _LIVES)

    def image_shape(self, piece: Piece, channels: int) -> tuple[int, ...]:
        """The shape of the spectra of a piece with ``channels`` channels per group."""
        images, tiles = piece.images.stop - piece.images.start, (line.count for line in piece.lines)
        return (*self.spectra.frequencies, self.problem.groups, images, *tiles, channels)

    @property
    def workspace_bytes(self) -> int:
        """The buffers, and what PyTorch's transforms of one block allocate."""
        shapes = [shape for piece in self._kinds for shape in self._shapes(piece).values()]
        most_tiles = max(self.spectra.block_planes(shape) * prod(shape[self.problem.rank + 2 : -1]) for shape in shapes)
        tile_bytes = prod(self.spectra.frequencies) * 2 * self.dtype.nbytes
        return self.buffers.nbytes + _COPIES * most_tiles * tile_bytes

    @property
    def _kinds(self) -> tuple[Piece, Piece]:
        """One piece of each size: all but the last are equal."""
        return self.pieces[0], self.pieces[-1]

    def _pieces(self) -> Pieces:
        """As many images as fit, or as many rows of tiles. The first piece is the largest."""
        problem, (line, *others) = self.problem, self.lines
        row_bytes = prod(self.spectra.frequencies) * (problem.c + problem.k) * 2 * self.dtype.nbytes
        rows = max(1, _PIECE_BYTES // (row_bytes * prod(other.count for other in others)))
        images = max(1, rows // line.count)
        return Pieces(problem.n, self.lines, images=images, rows=rows)

    def _shapes(self, piece: Piece) -> dict[str, tuple[int, ...]]:
        """The shapes of the spectra of a piece, by name."""
        x, y = (self.image_shape(piece, channels) for channels in (self.inputs, self.outputs))
        if self.problem.direction is Direction.BACKWARD_WEIGHT:
            return {"first": x, "second": y, "product": self.w_shape}
        first, product = (x, y) if self.problem.direction is Direction.FORWARD else (y, x)
        return {"first": first, "product": product}

    def _specs(self) -> dict[str, TensorSpec]:
        """Complex numbers are pairs of real ones. The first piece is the largest, but its blocks may not be."""
        specs = {name: TensorSpec((prod(shape), 2), self.dtype) for name, shape in self._shapes(self.pieces[0]).items()}
        tiles = max(
            self.spectra.block_planes(shape) * prod(line.source.extent for line in piece.lines)
            for piece in self._kinds
            for name, shape in self._shapes(piece).items()
            if name != "product"
        )
        return specs | {"tiles": TensorSpec((tiles,), self.dtype)}
