"""The convolution of kernels for few channels: a forward convolution, or an input gradient as one convolution of dy per
phase.

A phase is the elements of a dimension that the same taps reach: with windows ``stride`` apart, every ``stride``-th
element. Each phase has its own convolution with stride 1, whose filter is these taps mirrored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd, prod

from convwright.backends.triton.operands import moves, pair, weight_depth, weight_strides
from convwright.core.direction import Direction
from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

AT_ONCE_BYTES = 16
_ONE = Axis(size=1, taps=1, stride=1, pad=(0, 0), dilation=1)


@dataclass(frozen=True, slots=True)
class Phase:
    """The number of taps, the offset of the first one before its window, and the index in the weight of the tap that is
    first there."""

    taps: int
    before: int
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One dimension: elements that are read and written, and the windows of each phase.

    ``stride`` and ``dilation`` apply to what is read; ``step`` is the distance of a phase's taps in the weight.
    """

    read: int
    written: int
    stride: int
    dilation: int
    step: int
    phases: tuple[Phase, ...]

    @property
    def places(self) -> int:
        """Windows of a phase. The last one may exist only for the first phases."""
        return -(-self.written // len(self.phases))

    @property
    def most_taps(self) -> int:
        return max(phase.taps for phase in self.phases)


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The whole convolution: input, output, channels of a group, and three dimensions. Dimensions that the problem does
    not have come first, with size 1.

    ``mirrored``: the first tap that reads is the last one in the weight. There is one object per problem, and derived
    values are cached by its identity, since a search needs them hundreds of times.
    """

    read: TensorSpec
    written: TensorSpec
    groups: int
    inputs: int
    outputs: int
    tracks: tuple[Track, Track, Track]
    mirrored: bool

    @property
    def spacing(self) -> tuple[int, int]:
        """The distance of a strip's rows in rows of a phase, and the distance of their inputs in dilations.

        The smallest with which taps of different rows of a strip read the same inputs.
        """
        rows = self.tracks[1]
        common = gcd(rows.stride, rows.dilation)
        return rows.dilation // common, rows.stride // common

    @property
    def in_lanes_only(self) -> bool:
        """Whether the channels of a pixel are contiguous, so that lanes must run across groups."""
        return any(spec.shape[-1] > 1 and spec.strides[-1] != 1 for spec in (self.read, self.written))

    @property
    def columns_together(self) -> int:
        """Phases whose columns are stored by one instruction, if these are contiguous."""
        return 2 if len(self.tracks[2].phases) == 2 and not self.in_lanes_only else 1

    @property
    def read_together(self) -> int:
        """Contiguous, aligned elements that each tap reads: groups of a pixel, or columns of a row."""
        columns, most = self.tracks[2], AT_ONCE_BYTES // self.read.dtype.nbytes
        if self.in_lanes_only:
            return self.groups_together if self.inputs == 1 else 1
        if columns.stride > 1:
            return 1
        apart = columns.dilation if columns.most_taps > 1 else 0
        return gcd(apart, most, *(phase.before for phase in columns.phases))

    @property
    def groups_together(self) -> int:
        """The number of contiguous groups that one instruction reads."""
        return gcd(self.groups, AT_ONCE_BYTES // self.read.dtype.nbytes)

    @property
    def longest_sum(self) -> int:
        """The most products of one output element."""
        return self.inputs * max(T * R * S for T, R, S in self.windows())

    def windows(self) -> Iterator[tuple[int, int, int]]:
        """The taps of each phase in the three dimensions."""
        depth, rows, columns = ([phase.taps for phase in track.phases] for track in self.tracks)
        return product(depth, rows, columns)


@lru_cache(maxsize=256)
def sweep_of(problem: ConvProblem) -> Sweep:
    """For a convolution or an input gradient."""
    axes = (_ONE,) * (3 - problem.rank) + tuple(map(_needed, problem.axes))
    inputs, outputs = problem.w.shape[1], problem.k // problem.groups
    if problem.direction is Direction.FORWARD:
        rows = [_forward(axis) for axis in axes]
        return _sweep(problem, problem.x, problem.y, (inputs, outputs), rows, mirrored=problem.flip)
    rows = [_backward(axis, problem.flip) for axis in axes]
    return _sweep(problem, problem.y, problem.x, (outputs, inputs), rows, mirrored=not problem.flip)


def _sweep(
    problem: ConvProblem,
    read: TensorSpec,
    written: TensorSpec,
    channels: tuple[int, int],
    tracks: list[Track],
    *,
    mirrored: bool,
) -> Sweep:
    depth, rows, columns = tracks
    return Sweep(read, written, problem.groups, *channels, (depth, rows, columns), mirrored)


def _needed(axis: Axis) -> Axis:
    """Without the dilation of a single tap, which has no effect and would separate rows."""
    return replace(axis, dilation=1) if axis.taps == 1 else axis


def _forward(axis: Axis) -> Track:
    whole = Phase(axis.taps, axis.pad[0], 0)
    return Track(axis.size, axis.out, axis.stride, axis.dilation, 1, (whole,))


def _backward(axis: Axis, flip: bool) -> Track:
    common = gcd(axis.stride, axis.dilation)
    phases = tuple(_reaching(axis, element, flip) for element in range(min(axis.stride, axis.size)))
    return Track(axis.out, axis.size, 1, axis.dilation // common, axis.stride // common, phases)


def _reaching(axis: Axis, element: int, flip: bool) -> Phase:
    """The taps that reach ``element`` and all elements at multiples of the stride after it."""
    place = element + axis.pad[0]
    reaching = [tap for tap in range(axis.taps) if (place - tap * axis.dilation) % axis.stride == 0]
    if not reaching:
        return Phase(0, 0, 0)
    # Mirrored: the last tap comes first.
    before = (reaching[-1] * axis.dilation - place) // axis.stride
    return Phase(len(reaching), before, axis.taps - 1 - reaching[-1] if flip else reaching[0])


def stride_constants(sweep: Sweep) -> dict[str, int]:
    """Strides of input and output."""
    ahead = (0,) * (5 - len(sweep.read.shape))
    values: dict[str, int] = {}
    for spec, names in (sweep.read, "X_N X_C X_D X_H X_W"), (sweep.written, "Y_N Y_K Y_Z Y_P Y_Q"):
        images, channels, *pixels = moves(spec)
        values |= dict(zip(names.split(), (images, channels, *ahead, *pixels), strict=True))
    return values


def sweep_weight_strides(problem: ConvProblem, *, packed: bool) -> dict[str, int]:
    """Strides of the weight, unpacked or packed with its groups last."""
    outputs = problem.k // problem.groups
    if not packed:
        values = weight_strides(problem) | {"W_T": weight_depth(problem)["W_T"]}
        return values | {"W_G": outputs * values["W_K"]}
    _, channels, *taps = problem.w.shape
    R, S = pair(tuple(taps), 1)
    tap = problem.groups
    values = {"W_G": 1, "W_S": tap, "W_R": S * tap, "W_T": R * S * tap, "W_C": prod(taps) * tap}
    return values | {"W_K": channels * values["W_C"]}


def weight_constants(problem: ConvProblem, lying: dict[str, int]) -> dict[str, int]:
    """Strides along the groups, and along this convolution's output and input channels."""
    K, C = ("W_C", "W_K") if problem.direction is Direction.BACKWARD_DATA else ("W_K", "W_C")
    return {"W_G": lying["W_G"], "W_K": lying[K], "W_C": lying[C]}
