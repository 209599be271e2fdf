"""A convolution to be computed: frozen, hashable, checks itself, prints itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Protocol

from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.geometry import Axis
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.errors import BadInput
from convwright.naming import one_of


class Problem(Protocol):
    """Something to be computed. Finding, storing, measuring and predicting know only this."""

    @property
    def key(self) -> str:
        """The text form in full; equal for equal problems, stable across versions of the store."""

    @property
    def flops(self) -> int: ...

    @property
    def bytes(self) -> int:
        """The fewest bytes that must move: each input element that is used read once, the output written once."""

    @property
    def operands(self) -> Mapping[Role, TensorSpec]: ...


IntOrTuple = int | Sequence[int]


def per_axis(name: str, value: IntOrTuple, rank: int) -> tuple[int, ...]:
    """One int for each of ``rank`` spatial dimensions.

    >>> per_axis("stride", 2, 2)
    (2, 2)
    """
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values = values * rank
    if len(values) != rank or not all(isinstance(v, int) for v in values):
        raise BadInput(f"`{name}` must be an int or {rank} ints, got {value!r}")
    return values


@dataclass(frozen=True)
class ConvProblem:
    """One convolution in 1, 2 or 3 spatial dimensions.

    Sizes are those of the forward convolution whatever the direction: ``x`` is (N, C, spatial…), ``w`` is
    (K, C / groups, taps…), ``y`` is (N, K, spatial…). ``flip`` asks for a true convolution instead of the
    cross-correlation that deep learning calls convolution.

    >>> problem = ConvProblem.of((32, 256, 14, 14), (256, 256, 3, 3), padding=1)
    >>> problem.y.shape, problem.flops
    ((32, 256, 14, 14), 6710886400)
    """

    x: TensorSpec
    w: TensorSpec
    y: TensorSpec
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    direction: Direction = Direction.FORWARD
    epilogue: Epilogue = Epilogue()
    flip: bool = False

    def __post_init__(self) -> None:
        rank = len(self.x.shape) - 2
        if not 1 <= rank <= 3:
            raise BadInput(f"`input` must have 3, 4 or 5 dimensions (N, C, spatial), got shape {self.x.shape}")
        if len(self.w.shape) != rank + 2:
            raise BadInput(f"`weight` must have {rank + 2} dimensions like `input`, got shape {self.w.shape}")
        _check_positive(self, rank)
        _check_channels(self)
        out = (self.n, self.k, *(axis.out for axis in self.axes))
        for axis in self.axes:
            if axis.out < 1:
                raise BadInput(
                    f"the filter reaches over {axis.reach} elements, "
                    f"but the padded `input` has only {axis.size + sum(axis.pad)} in that dimension"
                )
        if self.y.shape != out:
            raise BadInput(f"`output` must have shape {out}, got {self.y.shape}")
        if self.epilogue and self.direction is not Direction.FORWARD:
            raise BadInput(f"an epilogue belongs to the forward direction, got {self.epilogue} on {self.direction}")

    @classmethod
    def of(
        cls,
        x: Sequence[int],
        w: Sequence[int],
        *,
        stride: IntOrTuple = 1,
        padding: IntOrTuple = 0,
        dilation: IntOrTuple = 1,
        groups: int = 1,
        dtype: DType | str = DType.FP32,
        layout: Layout | str = Layout.NCHW,
        direction: Direction | str = Direction.FORWARD,
        epilogue: Epilogue | str = Epilogue(),
        flip: bool = False,
    ) -> ConvProblem:
        """A problem with dense operands from the shapes of its input and weight."""
        rank = len(x) - 2
        dtype, layout = DType.parse(dtype), one_of(Layout, "layout", layout)
        specs = [TensorSpec(tuple(shape), dtype, dense_strides(tuple(shape), layout)) for shape in (x, w)]
        return cls.of_specs(
            *specs,
            layout=layout,
            stride=per_axis("stride", stride, rank),
            padding=tuple((p, p) for p in per_axis("padding", padding, rank)),
            dilation=per_axis("dilation", dilation, rank),
            groups=groups,
            direction=one_of(Direction, "direction", direction),
            epilogue=Epilogue.parse(epilogue) if isinstance(epilogue, str) else epilogue,
            flip=flip,
        )

    @classmethod
    def of_specs(
        cls,
        x: TensorSpec,
        w: TensorSpec,
        *,
        stride: tuple[int, ...],
        padding: tuple[tuple[int, int], ...],
        dilation: tuple[int, ...],
        layout: Layout = Layout.NCHW,
        groups: int = 1,
        direction: Direction = Direction.FORWARD,
        epilogue: Epilogue = Epilogue(),
        flip: bool = False,
    ) -> ConvProblem:
        """A problem whose output is dense in ``layout`` and as large as the convolution makes it."""
        window = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=False)
        spatial = (max(Axis(*dim).out, 0) if dim[2] > 0 else 0 for dim in window)
        shape = (x.shape[0] if x.shape else 0, w.shape[0] if w.shape else 0, *spatial)
        y = TensorSpec(shape, x.dtype, dense_strides(shape, layout))
        return cls(x, w, y, stride, padding, dilation, groups, direction, epilogue, flip)

    @classmethod
    def parse(cls, text: str) -> ConvProblem:
        """Read the text form, compact or full (see ``convwright.core.notation``)."""
        from convwright.core.notation import parse

        return parse(text)

    def __str__(self) -> str:
        return self.key

    @cached_property
    def key(self) -> str:
        from convwright.core.notation import full

        return full(self)

    def asking(self, direction: Direction) -> ConvProblem:
        """The same convolution in another direction. Backward problems carry no epilogue."""
        if direction is self.direction:
            return self
        return replace(self, direction=direction, epilogue=Epilogue())

    def in_layout(self, layout: Layout) -> ConvProblem:
        """The same convolution with all operands dense in ``layout``."""
        return replace(self, x=self.x.dense(layout), w=self.w.dense(layout), y=self.y.dense(layout))

    # The words of the field.

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.x.shape) - 2

    @property
    def n(self) -> int:
        """Images in the batch."""
        return self.x.shape[0]

    @property
    def c(self) -> int:
        """Input channels."""
        return self.x.shape[1]

    @property
    def k(self) -> int:
        """Output channels."""
        return self.w.shape[0]

    @property
    def taps(self) -> tuple[int, ...]:
        """The filter's size (R, S)."""
        return self.w.shape[2:]

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def axes(self) -> tuple[Axis, ...]:
        dims = zip(self.x.shape[2:], self.taps, self.stride, self.padding, self.dilation, strict=True)
        return tuple(Axis(*dim) for dim in dims)

    @property
    def symmetric_padding(self) -> tuple[int, ...] | None:
        """Padding per dimension where it is the same on both sides, else None."""
        return tuple(lo for lo, _ in self.padding) if all(lo == hi for lo, hi in self.padding) else None

    # The protocol.

    @property
    def operands(self) -> Mapping[Role, TensorSpec]:
        """All operands by role, the output last."""
        specs = {Role.X: self.x, Role.DX: self.x, Role.W: self.w, Role.DW: self.w, Role.Y: self.y, Role.DY: self.y}
        named = {role: specs[role] for role in self.direction.operands}
        if self.epilogue.residual:
            named[Role.RESIDUAL] = self.y
        if self.epilogue.bias:
            named[Role.BIAS] = TensorSpec((self.k,), self.dtype)
        named[self.direction.output] = specs[self.direction.output]
        return named

    @property
    def output(self) -> TensorSpec:
        return self.operands[self.direction.output]

    @cached_property
    def macs(self) -> int:
        """Multiplications that meet real elements; those with padding are not counted, since none need be done."""
        return self.n * self.k * self.w.shape[1] * prod(axis.products() for axis in self.axes)

    @property
    def flops(self) -> int:
        return 2 * self.macs

    @property
    def reduction(self) -> int:
        """Products that are summed into one element of the output, away from the borders."""
        if self.direction is Direction.FORWARD:
            return self.w.shape[1] * prod(self.taps)
        if self.direction is Direction.BACKWARD_DATA:
            return self.k // self.groups * prod(self.taps)
        return self.n * prod(self.y.shape[2:])

    @cached_property
    def bytes(self) -> int:
        total = sum(spec.nbytes for spec in self.operands.values())
        if Role.X in self.operands:
            touched = self.n * self.c * prod(axis.touched() for axis in self.axes)
            total -= self.x.nbytes - touched * self.dtype.nbytes
        return total


def _check_positive(problem: ConvProblem, rank: int) -> None:
    per_dim: dict[str, tuple[object, ...]] = {
        "stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation,
    }  # fmt: skip
    for name, values in per_dim.items():
        if len(values) != rank:
            raise BadInput(f"`{name}` must have one entry per spatial dimension ({rank}), got {values}")
    for name, least, values in (
        ("stride", 1, problem.stride),
        ("dilation", 1, problem.dilation),
        ("padding", 0, tuple(side for pair in problem.padding for side in pair)),
        ("weight", 1, problem.w.shape),
        ("input", 1, problem.x.shape[1:]),
        ("groups", 1, (problem.groups,)),
    ):
        if any(value < least for value in values):
            raise BadInput(f"`{name}` must be at least {least} in every dimension, got {values}")


def _check_channels(problem: ConvProblem) -> None:
    groups, channels = problem.groups, problem.c
    if channels % groups:
        raise BadInput(f"`in_channels` (={channels}) must be divisible by `groups` (={groups})")
    if problem.k % groups:
        raise BadInput(f"`out_channels` (={problem.k}) must be divisible by `groups` (={groups})")
    if problem.w.shape[1] != channels // groups:
        raise BadInput(
            f"`weight` must have in_channels / groups (={channels // groups}) channels for an input of {channels}, "
            f"got {problem.w.shape[1]}"
        )
    dtypes = {problem.x.dtype, problem.w.dtype, problem.y.dtype}
    if len(dtypes) > 1:
        raise BadInput(f"`input` and `weight` must have the same dtype, got {problem.x.dtype} and {problem.w.dtype}")
