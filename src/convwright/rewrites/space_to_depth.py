"""Fold a strided convolution into one of stride 1, on fewer pixels and more channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

from torch import Tensor

from convwright.core.candidate import Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.kinds.copy import CopyProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.naming import by
from convwright.rewrites.copies import Copy, Steps, between, permuted, split, stepped
from convwright.rewrites.copying import CopyingRewrite, Embeddings
from convwright.rewrites.embedding import Embedding, Part, divided
from convwright.rewrites.folding import Blocks, Fold, Place, Run
from convwright.rewrites.nearest_layout import lay_like

# Folding adds channels for kernels that need more. With this many per group it must not add work.
MANY_CHANNELS = 16
# In blocks, a 7x7 filter of stride 2 needs 1.3 times the multiplications, a 3x3 filter 1.8 times, a 1x1 filter 4 times.
MOST_WORK = 3


class SpaceToDepth(CopyingRewrite):
    """``space-to-depth(2, …)``: 2x2 pixels become one pixel with four times the channels, and stride 2 becomes 1.

    The filter is folded too, and filled up to whole blocks with zero taps. An infinity in x (in dy, for the gradient of
    x) times a zero tap is NaN where PyTorch has a number. So unless the filter fills its blocks, such a candidate needs
    ``Policy(finite_inputs=True)``.
    """

    name = "space-to-depth"
    written = r"\d+(x\d+)*, "

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        reason = refusal_reason(problem)
        if reason is not None:
            yield Refusal(self.name, reason)
        else:
            block = problem.stride
            yield (("block", block[0] if len(set(block)) == 1 else by(block)),)

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        folds, places = _folds(problem), prod(problem.stride)
        x = (problem.n, problem.c * places, *(fold.input.count for fold in folds))
        w = (problem.k, problem.w.shape[1] * places, *(fold.filter.count for fold in folds))
        ones = (1,) * problem.rank
        return replace(
            problem,
            x=lay_like(problem.x, x, problem),
            w=lay_like(problem.w, w, problem),
            stride=ones,
            padding=tuple(fold.pad for fold in folds),
            dilation=ones,
            flip=False,
        )

    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        inner, folds = self.inner(problem, arguments), _folds(problem)
        x = _embedding(problem.x, inner.x, problem.groups, [fold.input for fold in folds])
        w = _embedding(problem.w, inner.w, 1, [fold.filter for fold in folds], mirrored=problem.flip)
        inside = {Role.X: x, Role.DX: x, Role.W: w, Role.DW: w}
        return {role: inside[role] for role in problem.operands if role in inside}

    def copies(self, problem: ConvProblem, arguments: Config) -> dict[Role, Steps] | None:
        """None for a rotated filter, which would be read backwards, and for groups in three dimensions, whose views
        have more dimensions than a copy supports."""
        inner, folds = self.inner(problem, arguments), _folds(problem)
        if problem.flip or (problem.groups > 1 and problem.rank == 3):
            return None
        x, w = (problem.x, inner.x, problem.groups), (problem.w, inner.w, 1)
        folded = {Role.X: (*x, False), Role.DX: (*x, False), Role.W: (*w, True), Role.DW: (*w, True)}
        copies: dict[Role, Steps] = {}
        for role in problem.operands:
            if role in folded:
                spec, within, groups, is_filter = folded[role]
                axes = [fold.filter if is_filter else fold.input for fold in folds]
                move = _unfolded if role is problem.direction.output else _folded
                copies[role] = move(problem, spec, within, groups, axes)
        return copies


def _folded(problem: ConvProblem, spec: TensorSpec, inner: TensorSpec, groups: int, axes: Sequence[Blocks]) -> Steps:
    """To whole blocks, filled up with zeros if needed; then their places to channels."""
    if all(axis.offset == 0 and axis.whole <= axis.length for axis in axes):
        return (_folding(spec, inner, groups, axes),)
    blocks = _whole_blocks(problem, spec, axes)
    margins = ((0, 0), (0, 0), *((axis.offset, axis.whole - axis.offset - axis.length) for axis in axes))
    return (Copy(CopyProblem(spec, blocks, margins)), _folding(blocks, inner, groups, axes))


def _unfolded(problem: ConvProblem, spec: TensorSpec, inner: TensorSpec, groups: int, axes: Sequence[Blocks]) -> Steps:
    """From channels to whole blocks; then elements before the first and after the last are cut, and elements in no
    block become zero."""
    if all(axis.offset == 0 and axis.whole == axis.length for axis in axes):
        return (_folding(spec, inner, groups, axes, back=True),)
    blocks = _whole_blocks(problem, spec, axes)
    margins = ((0, 0), (0, 0), *((-axis.offset, axis.offset + axis.length - axis.whole) for axis in axes))
    return (_folding(blocks, inner, groups, axes, back=True), Copy(CopyProblem(blocks, spec, margins)))


def _whole_blocks(problem: ConvProblem, spec: TensorSpec, axes: Sequence[Blocks]) -> TensorSpec:
    return lay_like(spec, (*spec.shape[:2], *(axis.whole for axis in axes)), problem)


def _folding(blocks: TensorSpec, inner: TensorSpec, groups: int, axes: Sequence[Blocks], *, back: bool = False) -> Copy:
    """From blocks to channels, or ``back``. Both are viewed as (N, groups, places…, C per group, blocks…)."""
    channels = blocks.shape[1] // groups
    outside = split(blocks, 1, (groups, channels))
    for dim, axis in reversed([*enumerate(axes, 3)]):
        outside = split(stepped(outside, dim, axis.whole), dim, (axis.count, axis.size))
    counts = tuple(range(3, 3 + 2 * len(axes), 2))
    order = (0, 1, *(dim + 1 for dim in counts), 2, *counts)
    outside, inside = permuted(outside, order), split(inner, 1, (groups, *(axis.size for axis in axes), channels))
    return between(inside, outside) if back else between(outside, inside)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why folding is not tried; None if it is."""
    if max(problem.stride) == 1:
        return f"a stride of {by(problem.stride)} leaves nothing to fold"
    if any(axis.dilation > 1 and axis.taps > 1 for axis in problem.axes):
        return f"a filter with dilation {by(problem.dilation)} does not lie in blocks"
    folds, block = _folds(problem), by(problem.stride)
    if not all(fold.input.count for fold in folds):
        return f"with padding {problem.padding} no output reads any input"
    work = prod(fold.filter.count * fold.filter.size for fold in folds) / prod(problem.taps)
    filled = f"a filter of {by(problem.taps)} taps, filled up to blocks of {block}, takes {work:.3g} times the work"
    if work > MOST_WORK:
        return f"{filled}; at most {MOST_WORK} is tried"
    if work > 1 and problem.w.shape[1] > MANY_CHANNELS:
        return f"{filled}; with more than {MANY_CHANNELS} channels per group, here {problem.w.shape[1]}, none is added"
    return None


@dataclass(frozen=True, slots=True)
class _Folding:
    """(N, C, spatial…) and its folded form, both viewed as (N, groups, places…, C per group, blocks…)."""

    groups: int
    channels: int
    block: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.block)

    def outside(self, tensor: Tensor, runs: Sequence[Run]) -> Tensor:
        tensor = divided(tensor, 1, (self.groups, self.channels))
        for dim, run in reversed([*enumerate(runs, 3)]):
            tensor = divided(tensor.narrow(dim, run.start, run.length), dim, (run.place.blocks, run.place.width))
        blocks = range(3, 3 + 2 * self.rank, 2)
        return tensor.permute(0, 1, *(dim + 1 for dim in blocks), 2, *blocks)

    def inside(self, tensor: Tensor, places: Sequence[Place | None]) -> Tensor:
        tensor = divided(tensor, 1, (self.groups, *self.block, self.channels))
        for dim, place in enumerate(places, 2):
            if place is not None:
                tensor = tensor.narrow(dim, place.place, place.width)
                tensor = tensor.narrow(dim + self.rank + 1, place.block, place.blocks)
        return tensor


def _embedding(
    spec: TensorSpec, inner: TensorSpec, groups: int, axes: Sequence[Blocks], *, mirrored: bool = False
) -> Embedding:
    """An input or weight of ``spec`` in its folded form; ``mirrored`` also rotates a weight."""
    folding = _Folding(groups, spec.shape[1] // groups, tuple(axis.size for axis in axes))
    parts = [
        Part(partial(folding.outside, runs=runs), partial(folding.inside, places=[run.place for run in runs]))
        for runs in product(*(axis.mirrored_runs() if mirrored else axis.runs() for axis in axes))
    ]
    holes = [
        partial(folding.inside, places=[gap if other == dim else None for other in range(len(axes))])
        for dim, axis in enumerate(axes)
        for gap in axis.gaps()
    ]
    used = prod(spec.shape[:2]) * prod(axis.covered for axis in axes)
    unused = [_tail(dim, axis) for dim, axis in enumerate(axes, 2) if axis.covered < axis.length]
    return Embedding(inner, used * spec.dtype.nbytes, tuple(parts), tuple(holes), tuple(unused))


def _tail(dim: int, axis: Blocks) -> Callable[[Tensor], Tensor]:
    """The elements after the last block."""
    return lambda tensor: tensor.narrow(dim, axis.covered, axis.length - axis.covered)


def _folds(problem: ConvProblem) -> list[Fold]:
    return [Fold.of(axis) for axis in problem.axes]
