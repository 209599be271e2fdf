"""Convolution by maps. One matrix product per group multiplies every input pixel with the weights of all taps. The
product of a tap is then added to the output that reads the pixel with this tap.

    forward          maps = w · x,                        y[p] = Σ maps[tap][p ∗ stride + tap]
    backward data    maps[tap][p ∗ stride + tap] = dy[p], dx = wᵀ · maps
    backward weight  the same maps,                       dw = maps · xᵀ

There is a map of the input's size for each output channel and tap. If a group has few outputs, all maps are far smaller
than the columns of ``reference/gemm``, and the input is read once, in place. Sums are kept in fp32 at least.

Maps of a gradient are zero where a tap reads no pixel, and zero times infinity is NaN. If a factor is not finite,
``reference/direct`` computes the gradient instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from torch import Tensor

from convwright.backends.reference.direct import DirectPlan
from convwright.backends.reference.finite import is_finite
from convwright.backends.reference.maps import Maps
from convwright.backends.reference.matmul import multiply, multiply_add
from convwright.backends.reference.operands import by_group, by_tap, epilogue_, offer, start_, stored_
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.tensors import empty, torch_dtype

ALGORITHM = "kn2row"
# With fewer inputs per output the columns of reference/gemm are as small, and PyTorch's own call is faster on a CPU.
_INPUTS_FOR_AN_OUTPUT = 2
Tensors = dict[str, Tensor]


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """One candidate if groups have few outputs."""
    reason = refusal_reason(problem, device)
    if reason is not None:
        yield Refusal(f"reference/{ALGORITHM}", reason)
        return
    yield offer(problem, ALGORITHM, Maps(problem).buffers.nbytes)


def refusal_reason(problem: ConvProblem, device: DeviceFacts) -> str | None:
    """Why the algorithm cannot compute the problem or is unsuitable; None if it is suitable."""
    if problem.direction is not Direction.FORWARD and device.kind != "cpu":
        return f"checks values before it computes a gradient, which would make the host wait for {device.name}"
    if prod(problem.taps) == 1:
        return "needs at least 2 taps, got 1: reference/gemm is the same"
    inputs, outputs = problem.c // problem.groups, problem.k // problem.groups
    if inputs < _INPUTS_FOR_AN_OUTPUT * outputs:
        said = f"needs at least {_INPUTS_FOR_AN_OUTPUT} input channels for each output channel of a group"
        return f"{said}, got {inputs} and {outputs}"
    return None


def plan(candidate: Candidate) -> Plan:
    return Kn2rowPlan(candidate)


class Kn2rowPlan:
    """Runs ``reference/kn2row``."""

    writes_out = True

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.problem = candidate.problem
        self.maps = Maps(candidate.problem)
        self.direct = DirectPlan(candidate)
        self.workspace_bytes = self.maps.buffers.nbytes

    def prepare(self, weight: Tensor) -> Tensor:
        """A matrix per group with a row per tap and output: (G, taps · K / G, C / G), in the dtype of the sums."""
        rows = by_tap(weight, self.problem.groups).flatten(0, self.problem.rank - 1).movedim(1, 0)
        return rows.flatten(1, 2).to(torch_dtype(self.maps.dtype)).contiguous()

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
        buffers = self.maps.buffers.of(workspace, first.device)
        if self.problem.direction is Direction.BACKWARD_DATA:
            return self._backward_data(first, second, out, buffers)
        if self.problem.direction is Direction.BACKWARD_WEIGHT:
            return self._backward_weight(first, second, out, buffers)
        sums = start_(buffers.get("sums", out), residual)
        self._forward(first, second, sums, buffers)
        epilogue_(sums, bias, None, self.problem.epilogue.activation)
        return out if sums is out else stored_(out, sums)

    def _forward(self, x: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        for part in self.maps.parts():
            images, maps = self._read(x[part], buffers), buffers["maps"][: part.stop - part.start]
            multiply(self.maps.of(maps, w), self.maps.stack(images), out=self.maps.maps_as_stack(maps))
            y = by_group(sums[part], self.problem.groups)
            for made, tap in self.maps.by_place(maps):
                y[_by_group(tap.y)].add_(made[_by_group(tap.x)])

    def _backward_data(self, dy: Tensor, w: Tensor, dx: Tensor, buffers: Tensors) -> Tensor:
        if not is_finite(w):
            return self.direct(dy, self._by_tap(w), out=dx)
        for part, maps in self._filled(dy, buffers):
            images = dx[part] if self.maps.x_lies else buffers["x"][: part.stop - part.start]
            multiply(self.maps.of(maps, w).mT, self.maps.maps_as_stack(maps), out=self.maps.stack(images))
            if not self.maps.x_lies:
                dx[part].copy_(images)
        return dx

    def _backward_weight(self, x: Tensor, dy: Tensor, dw: Tensor, buffers: Tensors) -> Tensor:
        problem, sums = self.problem, buffers["w"].zero_()
        for part, maps in self._filled(dy, buffers):
            images = self.maps.stack(self._read(x[part], buffers))
            stack = self.maps.maps_as_stack(maps)
            for first in range(0, stack.shape[0], problem.groups):
                image = slice(first, first + problem.groups)
                multiply_add(stack[image], images[image].mT, out=sums)
        if not is_finite(sums):
            return self.direct(x, dy, out=dw)
        by_tap(dw, problem.groups).copy_(self._by_tap(sums))
        return dw

    def _filled(self, dy: Tensor, buffers: Tensors) -> Iterator[tuple[slice, Tensor]]:
        """The maps of a few images at a time, filled from the gradient with what each tap reads."""
        buffers["maps"].zero_()  # once: pixels that a tap does not reach are the same in all images
        for part in self.maps.parts():
            maps, y = buffers["maps"][: part.stop - part.start], by_group(dy[part], self.problem.groups)
            for made, tap in self.maps.by_place(maps):
                made[_by_group(tap.x)] = y[_by_group(tap.y)]
            yield part, maps

    def _by_tap(self, rows: Tensor) -> Tensor:
        """The matrices of a weight or its gradient as (taps…, G, K / G, C / G)."""
        problem = self.problem
        by_place = rows.view(problem.groups, *problem.taps, self.maps.rows, problem.w.shape[1])
        return by_place.movedim(0, problem.rank)

    def _read(self, images: Tensor, buffers: Tensors) -> Tensor:
        return images if self.maps.x_lies else buffers["x"][: images.shape[0]].copy_(images)


def _by_group(cut: tuple[slice, ...]) -> tuple[slice, ...]:
    """An index of (images, channels, spatial…), for (images, groups, channels, spatial…)."""
    return (slice(None), *cut)
