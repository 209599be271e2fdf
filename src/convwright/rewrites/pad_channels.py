"""Pad channels with zeros, so that their number is a multiple that fast kernels need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from torch import Tensor

from convwright.core.candidate import Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.rewrites.copies import Steps, grown, split, whole_copies
from convwright.rewrites.copying import CopyingRewrite, Embeddings
from convwright.rewrites.embedding import Embedding, Part, divided
from convwright.rewrites.nearest_layout import lay_like

MULTIPLES = (4, 8)
# Kernels for one-byte types read 16 of them at a time.
NARROW_MULTIPLES = (4, 16)
# Three input channels padded to eight need 2.7 times the multiplications; a depthwise convolution needs 16 times.
MOST_WORK = 4
_IMAGES = frozenset({Role.X, Role.DX, Role.Y, Role.DY, Role.RESIDUAL})


class PadChannels(CopyingRewrite):
    """``pad-c(8, …)``: in each group, input and output channels are padded to multiples of 8; for int8 and fp8 of 16.

    Both multiplied operands are padded, so zeros meet only zeros, and an infinity has no new effect. Additional
    channels of the output are cut off, whatever they hold.
    """

    name = "pad-c"
    written = r"\d+, "

    def possible(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Config | Refusal]:
        if problem.groups > 1 and prod(problem.x.shape[2:]) == 1:  # wrong with cuDNN 9.19 inside, in fp16 on an H200
            yield Refusal(self.name, "leaves groups of an image of one pixel as they are")
            return
        channels, rows = _per_group(problem)
        changing: dict[tuple[int, int], int] = {}
        for multiple in _multiples(problem):
            padded = _round_up(channels, multiple), _round_up(rows, multiple)
            if padded != (channels, rows):
                changing[padded] = multiple
        worth = [multiple for padded, multiple in changing.items() if _work(problem, padded) <= MOST_WORK]
        yield from ((("multiple", multiple),) for multiple in worth)
        if not worth:
            yield Refusal(self.name, _reason(problem, changing))

    def inner(self, problem: ConvProblem, arguments: Config) -> ConvProblem:
        channels, rows = _padded(problem, arguments)
        shape = (problem.groups * rows, channels, *problem.taps)
        return replace(
            problem,
            x=_with_channels(problem.x, problem.groups * channels, problem),
            w=lay_like(problem.w, shape, problem),
            y=_with_channels(problem.y, problem.groups * rows, problem),
        )

    def embeddings(self, problem: ConvProblem, arguments: Config) -> Embeddings:
        inner, groups = self.inner(problem, arguments), problem.groups
        before, after = _per_group(problem), _padded(problem, arguments)
        channels, rows = (_Padding(1, groups, *sizes) for sizes in zip(before, after, strict=True))
        inside = {Role.W: _weight(problem, inner, channels, rows)}
        inside[Role.DW] = inside[Role.W]
        if channels.zeros:
            inside[Role.X] = inside[Role.DX] = channels.embedding(problem.x, inner.x)
        if rows.zeros:
            inside[Role.Y] = inside[Role.DY] = rows.embedding(problem.y, inner.y)
            # A residual may hold anything in channels that are cut off.
            inside[Role.RESIDUAL] = replace(inside[Role.Y], holes=())
            biases = (TensorSpec((each.k,), problem.dtype.added) for each in (problem, inner))
            inside[Role.BIAS] = replace(replace(rows, dim=0).embedding(*biases), holes=())
        return {role: inside[role] for role in problem.operands if role in inside}

    def copies(self, problem: ConvProblem, arguments: Config) -> dict[Role, Steps]:
        inner, groups, output = self.inner(problem, arguments), problem.groups, problem.direction.output
        if groups == 1:
            return whole_copies(problem, inner)
        copies: dict[Role, Steps] = {}
        for role, spec in problem.operands.items():
            if (within := inner.operands[role]) == spec:
                continue
            # Output channels are the first dimension of a weight and of a bias.
            dim = 1 if role in _IMAGES else 0
            outside, inside = (split(each, dim, (groups, each.shape[dim] // groups)) for each in (spec, within))
            copies[role] = grown(inside, outside) if role is output else grown(outside, inside)
        return copies


@dataclass(frozen=True, slots=True)
class _Padding:
    """A channel dimension: in each group, ``size`` channels become ``padded``."""

    dim: int
    groups: int
    size: int
    padded: int

    @property
    def zeros(self) -> int:
        return self.padded - self.size

    def outside(self, tensor: Tensor) -> Tensor:
        return tensor if self.groups == 1 else divided(tensor, self.dim, (self.groups, self.size))

    def inside(self, tensor: Tensor) -> Tensor:
        return self._narrow(tensor, 0, self.size)

    def hole(self, tensor: Tensor) -> Tensor:
        return self._narrow(tensor, self.size, self.zeros)

    def embedding(self, spec: TensorSpec, inner: TensorSpec) -> Embedding:
        return Embedding(inner, spec.nbytes, (Part(self.outside, self.inside),), (self.hole,))

    def _narrow(self, tensor: Tensor, start: int, length: int) -> Tensor:
        if self.groups == 1:
            return tensor.narrow(self.dim, start, length)
        return divided(tensor, self.dim, (self.groups, self.padded)).narrow(self.dim + 1, start, length)


def _weight(problem: ConvProblem, inner: ConvProblem, channels: _Padding, rows: _Padding) -> Embedding:
    """A weight has its output channels in dimension 0, and one group's input channels in dimension 1."""
    rows, channels = replace(rows, dim=0), replace(channels, groups=1)
    part = Part(rows.outside, lambda tensor: rows.inside(channels.inside(tensor)))
    holes = tuple(padding.hole for padding in (rows, channels) if padding.zeros)
    return Embedding(inner.w, problem.w.nbytes, (part,), holes)


def _multiples(problem: ConvProblem) -> tuple[int, ...]:
    return NARROW_MULTIPLES if problem.dtype.narrow else MULTIPLES


def _per_group(problem: ConvProblem) -> tuple[int, int]:
    """Input and output channels of one group."""
    return problem.w.shape[1], problem.k // problem.groups


def _padded(problem: ConvProblem, arguments: Config) -> tuple[int, int]:
    channels, rows = _per_group(problem)
    multiple = int(dict(arguments)["multiple"])
    return _round_up(channels, multiple), _round_up(rows, multiple)


def _with_channels(spec: TensorSpec, channels: int, problem: ConvProblem) -> TensorSpec:
    if spec.shape[1] == channels:
        return spec
    return lay_like(spec, (spec.shape[0], channels, *spec.shape[2:]), problem)


def _round_up(channels: int, multiple: int) -> int:
    return -(-channels // multiple) * multiple


def _work(problem: ConvProblem, padded: tuple[int, int]) -> float:
    """The factor by which ``padded`` channels increase the multiplications."""
    channels, rows = _per_group(problem)
    return padded[0] * padded[1] / (channels * rows)


def _reason(problem: ConvProblem, changing: dict[tuple[int, int], int]) -> str:
    """Why no multiple is worth trying, given those that would change something."""
    channels, rows = _per_group(problem)
    given = f"{channels} input and {rows} output channels per group"
    if not changing:
        return f"{given} are multiples of {_multiples(problem)[-1]} already"
    padded, multiple = next(iter(changing.items()))
    work = _work(problem, padded)
    return f"{given}, padded to multiples of {multiple}, take {work:.3g} times the work; at most {MOST_WORK} is tried"
