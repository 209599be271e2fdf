"""The layouts that values can have, and operations on operands in given layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.graph.operations import Foreign, Operation

Specs = Mapping[str, TensorSpec]  # by role


def layouts_of(spec: TensorSpec) -> tuple[Layout, ...]:
    """The possible layouts of a value; only one if both are the same in memory.

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


def laid(operation: Operation, specs: Specs) -> Operation:
    """The operation with operands of these specs, by role. A weight takes the layout of its input."""
    if isinstance(operation, ConvProblem):
        first, output = (specs[role] for role in (operation.direction.operands[0], operation.direction.output))
        x, y = (first, output) if operation.direction.output == "y" else (output, first)
        return replace(operation, x=x, w=dense(operation.w, _layout_of(first)), y=y)
    if isinstance(operation, PointwiseProblem):
        inputs = tuple((name, specs[name]) for name, _ in operation.inputs)
        return replace(operation, inputs=inputs, y=specs["y"])
    if isinstance(operation, CopyProblem | PoolProblem | ResizeProblem):
        return replace(operation, x=specs["x"], y=specs["y"])
    if isinstance(operation, Foreign):
        inputs_, results = (
            tuple(specs[f"{letter}{place}"] for place in range(len(given)))
            for letter, given in (("x", operation.inputs), ("y", operation.results))
        )
        return replace(operation, inputs=inputs_, results=results)
    return operation


def _layout_of(spec: TensorSpec) -> Layout:
    """The layout with the spec's order of dimensions."""
    return Layout.NHWC if spec.strides[1] == 1 and spec.layout is not Layout.NCHW else Layout.NCHW
