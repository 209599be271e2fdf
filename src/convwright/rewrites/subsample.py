"""Keep only the input elements that a strided filter reads, if they are evenly spaced: the inner stride is 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

from torch import Tensor

from convwright.core.candidate import Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.geometry import Axis
from convwright.core.kinds.copy import CopyProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.naming import by
from convwright.rewrites.copies import Copy, Steps, begun, between, grown, split, stepped
from convwright.rewrites.copying import CopyingRewrite, Embeddings
from convwright.rewrites.embedding import WHOLE, Embedding, Part
from convwright.rewrites.nearest_layout import lay_like


class Subsample(CopyingRewrite):
    """``subsample(2, …)``: keep every second pixel for a 1x1 filter of stride 2; the inner problem has stride 1.

    A longer filter qualifies if its dilation and its stride have a common divisor. Products and sums stay the same. The
    gradient of elements that are not kept is zero.
    """

    name = "subsample"
    written = r"\d+(x\d+)*, "

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        reason, steps = refusal_reason(problem), [_step(axis) for axis in problem.axes]
        if reason is not None:
            yield Refusal(self.name, reason)
        else:
            yield (("step", steps[0] if len(set(steps)) == 1 else by(steps)),)

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        kept = [_Kept.of(axis) for axis in problem.axes]
        return replace(
            problem,
            x=lay_like(problem.x, (problem.n, problem.c, *(each.count for each in kept)), problem),
            stride=tuple(each.stride for each in kept),
            padding=tuple(each.pad for each in kept),
            dilation=tuple(each.dilation for each in kept),
        )

    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        kept, inner = [_Kept.of(axis) for axis in problem.axes], self.inner(problem, arguments).x
        _, whole = WHOLE[0]
        embedding = Embedding(inner, inner.nbytes, (Part(partial(_read, kept=kept), whole),), unused=(whole,))
        return {role: embedding for role in problem.operands if role in (Role.X, Role.DX)}

    def copies(self, problem: ConvProblem, arguments: Config) -> dict[Role, Steps]:
        kept, inner = [_Kept.of(axis) for axis in problem.axes], self.inner(problem, arguments).x
        if Role.X in problem.operands:
            return {Role.X: _brought_in(problem.x, inner, kept)}
        return {Role.DX: _brought_back(problem, inner, kept)}


def _brought_in(x: TensorSpec, inner: TensorSpec, kept: Sequence[_Kept]) -> Steps:
    """The kept elements, which are evenly spaced."""
    view, start = x, sum(each.first * x.strides[dim] for dim, each in enumerate(kept, 2))
    for dim, each in enumerate(kept, 2):
        view = stepped(view, dim, each.count, each.step)
    return (Copy(CopyProblem(begun(view, start), inner), start),)


def _brought_back(problem: ConvProblem, inner: TensorSpec, kept: Sequence[_Kept]) -> Steps:
    """Each element becomes a block of ``step`` with zeros. A second copy cuts or fills up blocks at the end of the
    gradient."""
    sizes = (*inner.shape[:2], *(each.count * each.step for each in kept))
    gradient = problem.x
    blocks = gradient if sizes == gradient.shape else lay_like(gradient, sizes, problem)
    source, target, margins = inner, blocks, [(0, 0)] * len(sizes)
    for dim, each in reversed([*enumerate(kept, 2)]):
        source, target = split(source, dim, (each.count, 1)), split(target, dim, (each.count, each.step))
        margins.insert(dim + 1, (each.first, each.step - 1 - each.first))
    filled = between(source, target, tuple(margins))
    return (filled,) if blocks == gradient else (filled, *grown(blocks, gradient))


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why no element can be left out; None if some can."""
    stride, image, kept = by(problem.stride), problem.x.shape[2:], [_Kept.of(axis).count for axis in problem.axes]
    if max(problem.stride) == 1:
        return f"a stride of {stride} skips nothing"
    if all(_step(axis) == 1 for axis in problem.axes):
        dilated = f" with dilation {by(problem.dilation)}" if max(problem.dilation) > 1 else ""
        return f"a filter of {by(problem.taps)}{dilated} reads what its stride of {stride} steps over"
    if not all(kept):
        return f"with padding {problem.padding} no output reads any input"
    return f"a stride of {stride} skips nothing of an image of {by(image)}" if tuple(kept) == image else None


@dataclass(frozen=True, slots=True)
class _Kept:
    """Every ``step``-th element of one axis from ``first`` on, ``count`` in all, and how a filter moves over them."""

    first: int
    step: int
    count: int
    stride: int
    pad: tuple[int, int]
    dilation: int

    @classmethod
    def of(cls, axis: Axis) -> _Kept:
        """
        >>> _Kept.of(Axis(size=56, taps=1, stride=2, pad=(0, 0), dilation=1))
        _Kept(first=0, step=2, count=28, stride=1, pad=(0, 0), dilation=1)
        >>> _Kept.of(Axis(size=7, taps=3, stride=2, pad=(3, 3), dilation=4))
        _Kept(first=1, step=2, count=3, stride=1, pad=(2, 2), dilation=2)
        """
        step, low = _step(axis), axis.pad[0]
        first = -low % step
        before = (low + first) // step
        stride, dilation = axis.stride // step, max(axis.dilation // step, 1)
        reached = (axis.out - 1) * stride + (axis.taps - 1) * dilation + 1 - before
        count = max(min(-(-(axis.size - first) // step), reached), 0)
        return cls(first, step, count, stride, (before, reached - count), dilation)


def _step(axis: Axis) -> int:
    """The common divisor of all distances between elements that a filter reads."""
    return axis.stride if axis.taps == 1 else gcd(axis.stride, axis.dilation)


def _read(x: Tensor, kept: Sequence[_Kept]) -> Tensor:
    """The kept elements of an input, as a view."""
    spatial = (slice(each.first, each.first + (each.count - 1) * each.step + 1, each.step) for each in kept)
    return x[(slice(None), slice(None), *spatial)]
