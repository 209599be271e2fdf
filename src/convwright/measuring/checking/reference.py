"""The float64 reference of a convolution, and the scale of its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from convwright.core.direction import Direction, Role
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.epilogue_math import per_channel
from convwright.measuring.checking.exact import bias_sums, multiplied, with_epilogue

# Above these FLOPs the reference covers slices: float64 is slow on CPUs, and outputs take 16 bytes an element.
_MOST_FLOPS = {"cpu": 2e9, "cuda": 2e11}
_MOST_ELEMENTS = 2**23
# What a slow CPU, or a GPU with few float64 units, computes in a microsecond: a rough estimate.
_FLOPS_PER_US = {"cpu": 2e3, "cuda": 1e6}


class Part(Protocol):
    """The part of a result that is checked."""

    def take(self, role: Any, tensor: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """The images and channels that are checked, always whole images with all their borders.

    No sum is shortened: only output elements are left out.
    """

    images: tuple[int, ...]
    in_channels: tuple[int, ...]
    out_channels: tuple[int, ...]
    weight_channels: tuple[int, ...]
    groups: int
    output: Role

    @classmethod
    def of(cls, problem: ConvProblem, share: float = 1.0) -> Sample:
        """About ``share`` of the work: fewer images first, then fewer channels of a group, then fewer groups."""
        direction, groups = problem.direction, problem.groups
        sizes = {"n": problem.n, "k": problem.k // groups, "c": problem.c // groups, "g": groups}
        free = {Direction.FORWARD: "nkg", Direction.BACKWARD_DATA: "ncg", Direction.BACKWARD_WEIGHT: "kcg"}[direction]
        kept = {name: tuple(range(size)) for name, size in sizes.items()}
        for name in free:
            kept[name] = _spread(sizes[name], share)
            share *= sizes[name] / max(len(kept[name]), 1)
        return cls(
            images=kept["n"],
            in_channels=tuple(g * sizes["c"] + c for g in kept["g"] for c in kept["c"]),
            out_channels=tuple(g * sizes["k"] + k for g in kept["g"] for k in kept["k"]),
            weight_channels=kept["c"],
            groups=len(kept["g"]),
            output=direction.output,
        )

    def take(self, role: Role, tensor: Tensor) -> Tensor:
        """The part of the operand ``role`` that the sample needs."""
        for dim, kept in enumerate(self._dims(role)):
            if len(kept) != tensor.shape[dim]:
                tensor = tensor.index_select(dim, torch.tensor(kept, device=tensor.device))
        return tensor

    def _dims(self, role: Role) -> tuple[tuple[int, ...], ...]:
        if role in _PER_CHANNEL:
            return (self.out_channels,)
        if role in (Role.W, Role.DW):
            return self.out_channels, self.weight_channels
        if role is Role.BEFORE:
            return self._dims(self.output)
        return self.images, self.in_channels if role in (Role.X, Role.DX) else self.out_channels


_PER_CHANNEL = (Role.BIAS, Role.SCALE, Role.DB)


@dataclass(frozen=True, slots=True)
class Whole:
    """All of a result."""

    def take(self, role: Role, tensor: Tensor) -> Tensor:
        return tensor


def _spread(count: int, share: float) -> tuple[int, ...]:
    """About ``share`` of ``count`` indices, evenly spaced, with first and last: edge tiles are partial."""
    wanted = min(count, max(2, int(count * share)))
    return tuple(i * (count - 1) // max(wanted - 1, 1) for i in range(wanted))


@dataclass(frozen=True, slots=True)
class Reference:
    """The float64 result of a problem on given operands, and the scale by which errors are divided.

    For a convolution the scale is |x| ∗ |w| + |residual| + |bias|, for other kinds what rounding at each step explains.
    Sums of int8 are exact in any order: their scale is the result itself before the activation, at least 1; it is 1 if
    stored as int8, whose numbers are evenly spaced. Results beyond int8 are clamped. ``bias`` is the reference of the
    bias's gradient, if there is one.
    """

    problem: Problem
    sample: Part
    y64: Tensor
    scale: Tensor
    role: str
    bias: Reference | None = None

    @classmethod
    def of(cls, problem: ConvProblem, tensors: Mapping[Role, Tensor]) -> Reference:
        """Computed where the operands are; on slices if the whole would take too long or too much memory."""
        device = next(iter(tensors.values())).device.type
        fitting = (
            _MOST_FLOPS.get(device, _MOST_FLOPS["cpu"]) / max(problem.flops, 1),
            _MOST_ELEMENTS / max(problem.output.numel, 1),
        )
        sample = Sample.of(problem, min(1.0, *fitting))
        exact = {role: sample.take(role, readable(tensor)).double() for role, tensor in tensors.items()}
        convolve, groups = _PRODUCT[problem.direction], sample.groups
        with torch.no_grad():
            given, scaled = multiplied(problem, exact)
            sums, scale = convolve(problem, *given, groups), convolve(problem, *scaled, groups)
            y64, scale = with_epilogue(
                problem, sums, scale, {role: _met(role, tensor, sums) for role, tensor in exact.items()}
            )
        return cls(problem, sample, y64, scale, problem.direction.output, cls.of_bias(problem, tensors))

    @classmethod
    def of_bias(cls, problem: ConvProblem, tensors: Mapping[Role, Tensor]) -> Reference | None:
        """The reference of the bias's gradient; None if it is not asked for."""
        if Role.DB not in problem.outputs:
            return None
        return cls(problem, Whole(), *bias_sums(problem, tensors), Role.DB)


def whole_convolution(problem: ConvProblem, exact: Mapping[Role, Tensor]) -> Tensor:
    """The whole result for float64 operands, without its scale."""
    first, second = (exact[role] for role in problem.direction.operands)
    sums = _PRODUCT[problem.direction](problem, first, second, problem.groups)
    return with_epilogue(problem, sums, sums, {role: _met(role, tensor, sums) for role, tensor in exact.items()})[0]


def readable(tensor: Tensor) -> Tensor:
    """The tensor, as fp32 if it is fp8, on which PyTorch has few operations."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def convolution_us(problem: Problem, device: torch.device) -> float:
    """A rough upper bound for the time of a reference: one convolution for the result and one for its scale."""
    most, rate = (table.get(device.type, table["cpu"]) for table in (_MOST_FLOPS, _FLOPS_PER_US))
    return 2 * min(problem.flops, most) / rate


def _met(role: Role, tensor: Tensor, sums: Tensor) -> Tensor:
    return per_channel(tensor, sums) if role in _PER_CHANNEL else tensor


def _forward(problem: ConvProblem, x: Tensor, w: Tensor, groups: int) -> Tensor:
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[problem.rank - 1]  # those of F may be replaced by ours
    return convolve(_padded(problem, x), _turned(problem, w), None, problem.stride, 0, problem.dilation, groups)


def _backward_data(problem: ConvProblem, dy: Tensor, w: Tensor, groups: int) -> Tensor:
    padded = (axis.size + sum(axis.pad) for axis in problem.axes)
    x = dy.new_empty((dy.shape[0], w.shape[1] * groups, *padded))
    dx = _gradients(problem, dy, x, _turned(problem, w), groups)[0]
    for dim, axis in enumerate(problem.axes, start=2):
        dx = dx.narrow(dim, axis.pad[0], axis.size)
    return dx


def _backward_weight(problem: ConvProblem, x: Tensor, dy: Tensor, groups: int) -> Tensor:
    w = x.new_empty((dy.shape[1], x.shape[1] // groups, *problem.taps))
    return _turned(problem, _gradients(problem, dy, _padded(problem, x), w, groups)[1])


_PRODUCT = {
    Direction.FORWARD: _forward,
    Direction.BACKWARD_DATA: _backward_data,
    Direction.BACKWARD_WEIGHT: _backward_weight,
}


def _gradients(problem: ConvProblem, dy: Tensor, x: Tensor, w: Tensor, groups: int) -> Sequence[Tensor]:
    forward = problem.direction is Direction.BACKWARD_DATA
    none, wanted = [0] * problem.rank, [forward, not forward, False]
    window = (problem.stride, none, problem.dilation, False, none, groups, wanted)
    return cast(Sequence[Tensor], torch.ops.aten.convolution_backward(dy, x, w, None, *window))


def _padded(problem: ConvProblem, x: Tensor) -> Tensor:
    """Padding as data: it may differ on the two sides, which PyTorch's convolutions do not support."""
    sides = [side for pair in reversed(problem.padding) for side in pair]
    return F.pad(x, sides) if any(sides) else x


def _turned(problem: ConvProblem, w: Tensor) -> Tensor:
    return w.flip(tuple(range(2, w.dim()))) if problem.flip else w
