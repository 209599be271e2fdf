"""The dense layout closest to an operand's strides, so that a copy between them is cheap."""

from __future__ import annotations

from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides


def lay_like(spec: TensorSpec, shape: tuple[int, ...], problem: ConvProblem) -> TensorSpec:
    """``shape`` dense in the layout closest to ``spec``; if its sizes leave that open, to the other operands'."""
    order = (spec, problem.x, problem.y, problem.w)
    layout = next((layout for each in order if (layout := _nearest(each)) is not None), Layout.NCHW)
    return TensorSpec(shape, spec.dtype, dense_strides(shape, layout))


def _nearest(spec: TensorSpec) -> Layout | None:
    """The closest layout; None for one channel or one position, where both are the same."""
    spatial = [stride for size, stride in zip(spec.shape[2:], spec.strides[2:], strict=True) if size > 1]
    if spec.shape[1] == 1 or not spatial:
        return None
    return Layout.NHWC if spec.strides[1] < min(spatial) else Layout.NCHW
