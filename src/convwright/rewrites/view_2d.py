"""Views that turn a 1-d or 3-d convolution into a 2-d one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from torch import Tensor

from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.naming import by
from convwright.rewrites.embedding import divided

Value = TypeVar("Value")


class View2D(Protocol):
    """How operands are viewed, and viewed back: x, y and their gradients as ``images``, w and its gradient as
    ``weight``."""

    def inner(self, problem: ConvProblem) -> ConvProblem: ...

    def images(self, tensor: Tensor) -> Tensor: ...

    def weight(self, tensor: Tensor) -> Tensor: ...

    def images_back(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor: ...

    def weight_back(self, tensor: Tensor) -> Tensor: ...


class WithHeight:
    """(N, C, W) as (N, C, 1, W)."""

    def inner(self, problem: ConvProblem) -> ConvProblem:
        x, w, y = (_with_height(spec) for spec in (problem.x, problem.w, problem.y))
        return replace(
            problem, x=x, w=w, y=y,
            stride=(1, *problem.stride),
            padding=((0, 0), *problem.padding),
            dilation=(1, *problem.dilation),
        )  # fmt: skip

    def images(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(2)

    def weight(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(2)

    def images_back(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        return tensor.squeeze(2)

    def weight_back(self, tensor: Tensor) -> Tensor:
        return tensor.squeeze(2)


@dataclass(frozen=True, slots=True)
class Merged:
    """(N, C, D, H, W) with dimension ``gone`` merged into dimension ``kept``, which has the larger stride."""

    kept: int
    gone: int

    def fits(self, problem: ConvProblem) -> bool:
        """Whether one stride covers both dimensions in the input and in the output."""
        return self._counts(problem.x) and self._counts(problem.y)

    def inner(self, problem: ConvProblem) -> ConvProblem:
        w, axis = problem.w, self.gone - 2
        return replace(
            problem,
            x=self._merged(problem.x),
            w=replace(w, shape=_without(w.shape, self.gone), strides=_without(w.strides, self.gone)),
            y=self._merged(problem.y),
            stride=_without(problem.stride, axis),
            padding=_without(problem.padding, axis),
            dilation=_without(problem.dilation, axis),
        )

    def images(self, tensor: Tensor) -> Tensor:
        return tensor.movedim(self.gone, self.kept + 1).view(self._shape(tuple(tensor.shape)))

    def weight(self, tensor: Tensor) -> Tensor:
        return tensor.squeeze(self.gone)

    def images_back(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        return divided(tensor, self.kept, (shape[self.kept], shape[self.gone])).movedim(self.kept + 1, self.gone)

    def weight_back(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(self.gone)

    def _counts(self, spec: TensorSpec) -> bool:
        size, inner_size = spec.shape[self.kept], spec.shape[self.gone]
        return min(size, inner_size) <= 1 or spec.strides[self.kept] == inner_size * spec.strides[self.gone]

    def _merged(self, spec: TensorSpec) -> TensorSpec:
        step = spec.strides[self.kept if spec.shape[self.gone] == 1 else self.gone]
        strides = _without(_with(spec.strides, self.kept, step), self.gone)
        return replace(spec, shape=self._shape(spec.shape), strides=strides)

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        counted = _with(shape, self.kept, shape[self.kept] * shape[self.gone])
        return _without(counted, self.gone)


# Merging two spatial dimensions keeps the number of images, and works in every dense layout.
MERGED = (Merged(3, 4), Merged(2, 3), Merged(0, 2))


def view_of(problem: ConvProblem) -> View2D | None:
    """The 2-d view of ``problem``; None if there is none."""
    if problem.rank == 1:
        return WithHeight()
    return next((each for each in _mergeable(problem) if each.fits(problem)), None)


def _mergeable(problem: ConvProblem) -> list[Merged]:
    """The merges that the filter allows: it must have one tap there."""
    if problem.rank != 3:
        return []
    single = [axis.taps == axis.stride == 1 and axis.pad == (0, 0) for axis in problem.axes]
    alone = {0, *(dim for dim, is_single in enumerate(single, 2) if is_single)}
    return [each for each in MERGED if {each.kept, each.gone} <= alone]


def refusal_reason(problem: ConvProblem) -> str:
    """Why ``problem`` has no 2-d view."""
    if problem.rank == 2:
        return "it has 2 spatial dimensions already"
    taps = by(problem.taps)
    if not _mergeable(problem):
        window = f"{taps} taps, stride {problem.stride}, padding {problem.padding}"
        return f"neither depth nor two other dimensions have one tap, stride 1 and no padding: it has {window}"
    strides = f"the input's are {problem.x.strides}, the output's {problem.y.strides}"
    return f"no stride counts images and depth as one: {strides}"


def _with_height(spec: TensorSpec) -> TensorSpec:
    """A spec with a dimension of size 1 before the spatial one."""
    shape, strides = spec.shape, spec.strides
    return replace(spec, shape=_before(shape, 1), strides=_before(strides, shape[2] * strides[2]))


def _before(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    return (*values[:2], value, *values[2:])


def _with(values: tuple[Value, ...], at: int, value: Value) -> tuple[Value, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _without(values: tuple[Value, ...], at: int) -> tuple[Value, ...]:
    return (*values[:at], *values[at + 1 :])
