"""In which layouts values can lie, and an operation on operands that lie so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.graph.operations import Foreign, Operation

Layouts = Mapping[str, Layout]  # by role


def layouts_of(spec: TensorSpec) -> tuple[Layout, ...]:
    """The layouts in which a value can lie; one where both are the same in memory.

    >>> from convwright.core.dtype import DType
    >>> layouts_of(TensorSpec((2, 8, 4, 4), DType.FP32)), layouts_of(TensorSpec((2, 8, 1, 1), DType.FP32))
    ((<Layout.NCHW: 'nchw'>, <Layout.NHWC: 'nhwc'>), (<Layout.NCHW: 'nchw'>,))
    """
    is_image = 3 < len(spec.shape) < 6
    differs = TensorSpec(spec.shape, spec.dtype, dense_strides(spec.shape, Layout.NHWC)).layout is Layout.NHWC
    return (Layout.NCHW, Layout.NHWC) if is_image and differs else (Layout.NCHW,)


def dense(spec: TensorSpec, layout: Layout = Layout.NCHW) -> TensorSpec:
    """The spec in one of its layouts."""
    return spec.dense(layout if layout in layouts_of(spec) else Layout.NCHW)


def laid(operation: Operation, layouts: Layouts) -> Operation:
    """The operation with its operands in these layouts, by role. A weight lies as what it is multiplied with."""
    if isinstance(operation, ConvProblem):
        first, output = (layouts[role] for role in (operation.direction.operands[0], operation.direction.output))
        x, y = (first, output) if operation.direction.output == "y" else (output, first)
        return replace(operation, x=dense(operation.x, x), w=dense(operation.w, first), y=dense(operation.y, y))
    if isinstance(operation, PointwiseProblem):
        inputs = tuple((name, dense(spec, layouts[name])) for name, spec in operation.inputs)
        return replace(operation, inputs=inputs, y=dense(operation.y, layouts["y"]))
    if isinstance(operation, CopyProblem):
        return replace(operation, x=dense(operation.x, layouts["x"]), y=dense(operation.y, layouts["y"]))
    if isinstance(operation, Foreign):
        inputs_, results = (
            tuple(dense(spec, layouts[f"{letter}{place}"]) for place, spec in enumerate(specs))
            for letter, specs in (("x", operation.inputs), ("y", operation.results))
        )
        return replace(operation, inputs=inputs_, results=results)
    return operation
