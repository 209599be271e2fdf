"""cuDNN's descriptors of a problem: tensors, filters, convolutions, activations. Needs no GPU."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass

from convwright.backends.cudnn.classic.operands import filter_layout, is_dense
from convwright.backends.cudnn.library import Library
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides

_DATA_TYPE = {DType.FP32: 0, DType.FP64: 1, DType.FP16: 2, DType.BF16: 9}
_FORMAT = {Layout.NCHW: 0, Layout.NHWC: 1}
# FMA is the only math type that forbids TF32; the default type allows it.
_DEFAULT_MATH, _TENSOR_OP_MATH, _FMA_MATH = 0, 1, 3
_MATH_TYPE = {
    Arithmetic.FP64: _DEFAULT_MATH,
    Arithmetic.FP32: _FMA_MATH,
    Arithmetic.TF32: _DEFAULT_MATH,
    Arithmetic.FP16_ACC32: _TENSOR_OP_MATH,
    Arithmetic.BF16_ACC32: _TENSOR_OP_MATH,
}
_CONVOLUTION, _CROSS_CORRELATION = 0, 1
_ACTIVATION_MODE = {Activation.RELU: 1, Activation.NONE: 5}
_PROPAGATE_NAN = 1


class Descriptor(c_void_p):
    """A pointer to one of cuDNN's descriptors, which is destroyed with the last reference to the pointer."""

    def __init__(self, library: Library, noun: str) -> None:
        super().__init__()
        library.call(f"cudnnCreate{noun}Descriptor", byref(self))
        destroy = weakref.finalize(self, library.status, f"cudnnDestroy{noun}Descriptor", c_void_p(self.value))
        destroy.atexit = False  # memory is freed with the process, and cuDNN may be unloaded by then


@dataclass(frozen=True, slots=True)
class ConvDescriptors:
    """The descriptors of one problem. ``x``, ``w``, ``y`` serve all three directions."""

    library: Library
    x: Descriptor
    w: Descriptor
    y: Descriptor
    convolution: Descriptor

    def operands(self, direction: Direction) -> tuple[Descriptor, Descriptor, Descriptor]:
        """The two factors and the output in cuDNN's order: for backward data the weight comes first."""
        return {
            Direction.FORWARD: (self.x, self.w, self.y),
            Direction.BACKWARD_DATA: (self.w, self.y, self.x),
            Direction.BACKWARD_WEIGHT: (self.x, self.y, self.w),
        }[direction]


def describe(library: Library, problem: ConvProblem, arithmetic: Arithmetic) -> ConvDescriptors:
    """All descriptors of ``problem``, for which ``objection`` must return None."""
    layout = filter_layout(problem)
    return ConvDescriptors(
        library,
        x=tensor_descriptor(library, problem.x, layout),
        w=filter_descriptor(library, problem.w, layout),
        y=tensor_descriptor(library, problem.y, layout),
        convolution=convolution_descriptor(library, problem, arithmetic),
    )


def sizes_and_strides(spec: TensorSpec, layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of an activation for cuDNN, with at least two spatial dimensions.

    >>> sizes_and_strides(TensorSpec((2, 8, 10), DType.FP16), Layout.NCHW)
    ((2, 8, 1, 10), (80, 10, 10, 1))
    """
    # cuDNN infers the layout from strides, which are ambiguous with one channel or one pixel.
    strides = dense_strides(spec.shape, layout) if is_dense(spec, layout) else spec.strides
    if len(spec.shape) == 3:
        strides = (*strides[:2], strides[2] * spec.shape[2], strides[2])
    return _as_2d(spec.shape, 1), strides


def tensor_descriptor(library: Library, spec: TensorSpec, layout: Layout) -> Descriptor:
    """An activation with its true strides; in cuDNN's own form if it is dense in ``layout``."""
    shape, strides = sizes_and_strides(spec, layout)
    made = Descriptor(library, "Tensor")
    data_type = _DATA_TYPE[spec.dtype]
    library.call("cudnnSetTensorNdDescriptor", made, data_type, len(shape), _ints(shape), _ints(strides))
    return made


def filter_descriptor(library: Library, spec: TensorSpec, layout: Layout) -> Descriptor:
    """A weight, dense in ``layout``."""
    shape = _as_2d(spec.shape, 1)
    made = Descriptor(library, "Filter")
    data_type = _DATA_TYPE[spec.dtype]
    library.call("cudnnSetFilterNdDescriptor", made, data_type, _FORMAT[layout], len(shape), _ints(shape))
    return made


def convolution_descriptor(library: Library, problem: ConvProblem, arithmetic: Arithmetic) -> Descriptor:
    """Padding, stride, dilation, groups, and the allowed arithmetic."""
    padding = tuple(before for before, _ in problem.padding)
    dims = [_as_2d(values, fill, ahead=0) for values, fill in
            ((padding, 0), (problem.stride, 1), (problem.dilation, 1))]  # fmt: skip
    mode = _CONVOLUTION if problem.flip else _CROSS_CORRELATION
    accumulator = _DATA_TYPE[DType.FP64 if problem.dtype is DType.FP64 else DType.FP32]
    made = Descriptor(library, "Convolution")
    library.call(
        "cudnnSetConvolutionNdDescriptor", made, len(dims[0]), *map(_ints, dims), mode, accumulator
    )  # fmt: skip
    library.call("cudnnSetConvolutionGroupCount", made, problem.groups)
    library.call("cudnnSetConvolutionMathType", made, _MATH_TYPE[arithmetic])
    return made


def bias_descriptor(library: Library, problem: ConvProblem) -> Descriptor:
    """One value per output channel."""
    return tensor_descriptor(library, TensorSpec((1, problem.k, *[1] * problem.rank), problem.dtype), Layout.NCHW)


def activation_descriptor(library: Library, kind: Activation) -> Descriptor:
    """The activation after a convolution. It keeps NaN, as PyTorch does."""
    made = Descriptor(library, "Activation")
    library.call("cudnnSetActivationDescriptor", made, _ACTIVATION_MODE[kind], _PROPAGATE_NAN, 0.0)
    return made


def _as_2d(values: tuple[int, ...], fill: int, *, ahead: int = 2) -> tuple[int, ...]:
    """``values`` with a height put before them if there is one spatial dimension; unchanged otherwise."""
    return (*values[:ahead], fill, *values[ahead:]) if len(values) == ahead + 1 else values


def _ints(values: Sequence[int]) -> object:
    return (c_int * len(values))(*values)
