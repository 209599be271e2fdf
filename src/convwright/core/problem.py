"""A convolution to compute: frozen and hashable, validated, with a text form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from convwright.core import notation
from convwright.core.direction import Direction, Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.error_bound import bound_of
from convwright.core.geometry import Axis
from convwright.core.once import once
from convwright.core.problem_checks import check
from convwright.core.record import Record
from convwright.core.tensor_spec import Layout, LayoutName, TensorSpec, dense_strides, layouts_of
from convwright.core.transposed import transposed_of_specs
from convwright.core.window import AnyPadding, all_sides, shape_of
from convwright.core.window import IntOrTuple as IntOrTuple
from convwright.core.window import per_axis as per_axis
from convwright.naming import one_of


@dataclass(frozen=True)
class ConvProblem(Record):
    """One convolution in 1, 2 or 3 spatial dimensions.

    Sizes are those of the forward convolution whatever the direction: ``x`` is (N, C, spatial…), ``w`` is
    (K, C / groups, taps…), ``y`` is (N, K, spatial…). ``flip`` asks for a true convolution instead of the
    cross-correlation that deep learning calls convolution.

    >>> problem = ConvProblem.of((32, 256, 14, 14), (256, 256, 3, 3), padding=1)
    >>> problem.y.shape, problem.flops
    ((32, 256, 14, 14), 6710886400)
    """

    kind: ClassVar[str] = "conv"
    _PROPERTIES: ClassVar = ("key",)

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
        check(self)

    @classmethod
    def of(
        cls,
        x: Sequence[int],
        w: Sequence[int],
        *,
        stride: IntOrTuple = 1,
        padding: AnyPadding = 0,
        dilation: IntOrTuple = 1,
        groups: int = 1,
        dtype: DType | str = DType.FP32,
        out_dtype: DType | str | None = None,
        layout: LayoutName | Mapping[str, LayoutName] = Layout.NCHW,
        alignment: int = 16,
        direction: Direction | str = Direction.FORWARD,
        epilogue: Epilogue | str = Epilogue(),
        flip: bool = False,
    ) -> ConvProblem:
        """A problem with dense operands from the shapes of its input and weight.

        ``padding`` is an int, one int or one pair (before, after) for each dimension, "same" or "valid". ``layout``
        may differ by operand. ``alignment`` is in bytes. ``out_dtype`` may differ from ``dtype`` only for int8 and fp8,
        whose default output is fp32.

        >>> ConvProblem.of((1, 8, 10, 10), (8, 8, 4, 4), padding="same", layout={"x": "nhwc"}).padding
        ((1, 2), (1, 2))
        """
        xs, ws, layouts = *_dense(x, w, dtype, layout, alignment), layouts_of(layout)
        rank = len(xs.shape) - 2
        strides, dilations = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
        problem = cls.of_specs(
            xs,
            ws,
            layout=layouts["y"],
            stride=strides,
            # A weight of another rank has no taps to pad for; the problem then refuses it.
            padding=all_sides(padding, ws.shape[2:], strides, dilations) if len(ws.shape) == rank + 2 else (),
            dilation=dilations,
            groups=groups,
            direction=one_of(Direction, "direction", direction),
            epilogue=Epilogue.parse(epilogue) if isinstance(epilogue, str) else epilogue,
            flip=flip,
            out_dtype=None if out_dtype is None else DType.parse(str(out_dtype)),
        )
        return replace(problem, y=replace(problem.y, alignment=alignment))

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
        out_dtype: DType | None = None,
    ) -> ConvProblem:
        """A problem whose output is dense in ``layout``, with the size of the convolution."""
        window = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=False)
        spatial = (max(Axis(*dim).out, 0) if dim[2] > 0 else 0 for dim in window)
        shape = (x.shape[0] if x.shape else 0, w.shape[0] if w.shape else 0, *spatial)
        y = TensorSpec(shape, out_dtype or x.dtype.outputs[0], dense_strides(shape, layout))
        return cls(x, w, y, stride, padding, dilation, groups, direction, epilogue, flip)

    @classmethod
    def of_transposed(
        cls,
        x: Sequence[int],
        w: Sequence[int],
        *,
        stride: IntOrTuple = 1,
        padding: IntOrTuple = 0,
        output_padding: IntOrTuple = 0,
        groups: int = 1,
        dilation: IntOrTuple = 1,
        dtype: DType | str = DType.FP32,
        layout: LayoutName | Mapping[str, LayoutName] = Layout.NCHW,
        alignment: int = 16,
    ) -> ConvProblem:
        """The transposed convolution that ``F.conv_transpose2d`` and its siblings compute with these arguments.

        It is the backward_data problem of an ordinary convolution: its input is that convolution's ``dy``, its output
        the ``dx``, and the weight, (in_channels, out_channels / groups, taps…), is the same.

        >>> ConvProblem.of_transposed((1, 16, 7, 7), (16, 8, 3, 3), stride=2, padding=1, output_padding=1).output.shape
        (1, 8, 14, 14)
        """
        problem = transposed_of_specs(
            cls,
            *_dense(x, w, dtype, layout, alignment),
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            dilation=dilation,
            groups=groups,
            layout=layouts_of(layout)["y"],
        )
        return replace(problem, x=replace(problem.x, alignment=alignment))

    @classmethod
    def parse(cls, text: str) -> ConvProblem:
        """Read the text form, compact or full (see ``convwright.core.notation``).

        >>> ConvProblem.parse("mb32ic256ih14oc256kh3ph1").key
        'g1mb32ic256oc256ih14iw14oh14ow14kh3kw3sh1sw1ph1pw1dh0dw0 dt:fp32 dir:forward tag:nchw ep:none'
        """
        return notation.parse(text, cls)

    def __str__(self) -> str:
        return self.key

    @once
    def key(self) -> str:
        return notation.full(self)

    def asking(self, direction: Direction) -> ConvProblem:
        """The same convolution in another direction, without an epilogue: autograd computes that once for both."""
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
        """The storage type of the operands that are multiplied."""
        return self.x.dtype

    @property
    def axes(self) -> tuple[Axis, ...]:
        dims = zip(self.x.shape[2:], self.taps, self.stride, self.padding, self.dilation, strict=True)
        return tuple(Axis(*dim) for dim in dims)

    @property
    def symmetric_padding(self) -> tuple[int, ...] | None:
        """Padding per dimension if it is the same on both sides, else None."""
        return tuple(lo for lo, _ in self.padding) if all(lo == hi for lo, hi in self.padding) else None

    @property
    def has_idle_taps(self) -> bool:
        """Whether a tap of the filter reads only padding, as 8 of 9 do for an image of one pixel."""
        return any(axis.taps_met() < axis.taps for axis in self.axes)

    @property
    def has_idle_outputs(self) -> bool:
        """Whether an output element reads only padding."""
        return any(axis.outputs_met() < axis.out for axis in self.axes)

    # The protocol.

    @property
    def operands(self) -> Mapping[Role, TensorSpec]:
        """All operands by role, the outputs last."""
        specs = {Role.X: self.x, Role.DX: self.x, Role.W: self.w, Role.DW: self.w, Role.Y: self.y, Role.DY: self.y}
        named = {role: specs[role] for role in self.direction.operands}
        named |= self._epilogue_operands()
        named |= dict.fromkeys(self.outputs[:-1], TensorSpec((self.k,), self.dtype))
        named[self.direction.output] = specs[self.direction.output]
        return named

    def _epilogue_operands(self) -> Mapping[Role, TensorSpec]:
        forward, epilogue = self.direction is Direction.FORWARD, self.epilogue
        per_channel = TensorSpec((self.k,), self.dtype.added)
        there = {
            Role.SCALE: (epilogue.scale, per_channel),
            Role.RESIDUAL: (epilogue.residual, self.y),
            Role.BIAS: (epilogue.bias and forward, per_channel),
            Role.Z: (not forward and epilogue.activation is not Activation.NONE, self.y),
            Role.BEFORE: (epilogue.accumulate, {Role.DX: self.x, Role.DW: self.w}.get(self.direction.output, self.y)),
        }
        return {role: spec for role, (is_there, spec) in there.items() if is_there}

    @property
    def outputs(self) -> tuple[Role, ...]:
        """The computed roles, a plan's result last: a bias's gradient comes before its weight's gradient."""
        with_bias = self.epilogue.bias and self.direction is Direction.BACKWARD_WEIGHT
        return (Role.DB, Role.DW) if with_bias else (self.direction.output,)

    @property
    def output(self) -> TensorSpec:
        # Plans read this at each call, so it avoids the dict of all operands.
        forward = self.direction is Direction.FORWARD
        return self.y if forward else self.x if self.direction is Direction.BACKWARD_DATA else self.w

    @once
    def macs(self) -> int:
        """Multiplications with real elements; those with padding need not be done and do not count."""
        return self.n * self.k * self.w.shape[1] * prod(axis.products() for axis in self.axes)

    @property
    def flops(self) -> int:
        return 2 * self.macs

    @property
    def reduction(self) -> int:
        """Products summed into one element of the output, away from the borders."""
        if self.direction is Direction.FORWARD:
            return self.w.shape[1] * prod(self.taps)
        if self.direction is Direction.BACKWARD_DATA:
            return self.k // self.groups * prod(self.taps)
        return self.n * prod(self.y.shape[2:])

    @once
    def bytes(self) -> int:
        """Bytes to read and write at least once: the whole output, and the operand elements that are multiplied."""
        return sum(self._met(role, spec) * spec.dtype.nbytes for role, spec in self.operands.items())

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """The largest scaled error that rounding explains (see ``convwright.core.error_bound``)."""
        return bound_of(self, arithmetic)

    def _met(self, role: Role, spec: TensorSpec) -> int:
        """The elements of an operand that must be read or written; a bias's gradient needs all of dy."""
        if role is Role.X:
            along = (axis.touched() for axis in self.axes)
        elif role is Role.W:
            along = (axis.taps_met() for axis in self.axes)
        elif role is Role.DY and Role.DB not in self.outputs:
            along = (axis.outputs_met() for axis in self.axes)
        else:
            return spec.numel
        return prod(spec.shape[:2]) * prod(along)


def _dense(
    x: Sequence[int],
    w: Sequence[int],
    dtype: DType | str,
    layout: LayoutName | Mapping[str, LayoutName],
    alignment: int,
) -> tuple[TensorSpec, TensorSpec]:
    """The specs of an input and a weight of these shapes."""
    layouts, kind = layouts_of(layout), DType.parse(str(dtype))
    shapes = {"x": shape_of("input", x), "w": shape_of("weight", w)}
    x_spec, w_spec = (
        TensorSpec(shape, kind, dense_strides(shape, layouts[name]), alignment) for name, shape in shapes.items()
    )
    return x_spec, w_spec
