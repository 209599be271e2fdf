"""Copies between views that bring an operand into an inner problem, or an output back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from convwright.core.direction import Role
from convwright.core.kinds.copy import CopyProblem, Margins
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy. It reads a view of a tensor from the element ``start`` on, and writes a view of another from its first
    element on. A view may have more dimensions than its tensor, or leave elements out."""

    problem: CopyProblem
    start: int = 0


Steps = tuple[Copy, ...]
"""Copies one after the other. Each reads the result of the one before it."""


def grown(source: TensorSpec, target: TensorSpec) -> Steps:
    """From one operand to another that starts with the same elements: the rest is zero, or left out."""
    sizes = zip(source.shape, target.shape, strict=True)
    return (Copy(CopyProblem(source, target, tuple((0, larger - size) for size, larger in sizes))),)


def whole_copies(problem: ConvProblem, inner: ConvProblem) -> dict[Role, Steps]:
    """A copy for each operand that differs in the inner problem but starts with the same elements there."""
    output, within = problem.direction.output, inner.operands
    differing = {role: spec for role, spec in problem.operands.items() if within[role] != spec}
    return {
        role: grown(within[role], spec) if role is output else grown(spec, within[role])
        for role, spec in differing.items()
    }


def between(source: TensorSpec, target: TensorSpec, margins: Margins = (), *, start: int = 0) -> Copy:
    """A copy between views, without dimensions of size 1."""
    margins = margins or ((0, 0),) * len(source.shape)
    several = tuple(dim for dim, size in enumerate(source.shape) if size != 1 or margins[dim] != (0, 0))
    kept = several or (0,)
    read, written = (permuted(spec, kept) for spec in (source, target))
    return Copy(CopyProblem(read, written, tuple(margins[dim] for dim in kept)), start)


def split(spec: TensorSpec, dim: int, sizes: tuple[int, ...]) -> TensorSpec:
    """A view in which ``dim`` becomes several dimensions of ``sizes``.

    >>> from convwright.core.dtype import DType
    >>> view = split(TensorSpec((2, 6), DType.FP32), 1, (3, 2))
    >>> view.shape, view.strides
    ((2, 3, 2), (6, 2, 1))
    """
    strides, step = [0] * len(sizes), spec.strides[dim]
    for place in reversed(range(len(sizes))):
        strides[place] = step
        step *= sizes[place]
    shape = (*spec.shape[:dim], *sizes, *spec.shape[dim + 1 :])
    return replace(spec, shape=shape, strides=(*spec.strides[:dim], *strides, *spec.strides[dim + 1 :]))


def permuted(spec: TensorSpec, order: tuple[int, ...]) -> TensorSpec:
    """A view of the dimensions in ``order``; dimensions left out must have size 1."""
    return replace(
        spec, shape=tuple(spec.shape[dim] for dim in order), strides=tuple(spec.strides[dim] for dim in order)
    )


def stepped(spec: TensorSpec, dim: int, count: int, step: int = 1) -> TensorSpec:
    """A view of ``count`` elements along ``dim``, ``step`` apart."""
    shape = (*spec.shape[:dim], count, *spec.shape[dim + 1 :])
    strides = (*spec.strides[:dim], spec.strides[dim] * step, *spec.strides[dim + 1 :])
    return replace(spec, shape=shape, strides=strides)


def begun(spec: TensorSpec, start: int) -> TensorSpec:
    """A view that starts ``start`` elements later, with the alignment that is certain there."""
    nbytes = start * spec.dtype.nbytes
    return spec if not nbytes else replace(spec, alignment=min(spec.alignment, nbytes & -nbytes))
