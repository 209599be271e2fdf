"""The dense layout that is nearest to how an operand lies: a copy from one to the other stays cheap."""

from __future__ import annotations

from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides


def lay_like(spec: TensorSpec, shape: tuple[int, ...], problem: ConvProblem) -> TensorSpec:
    """``shape`` dense in the layout nearest to ``spec``; where its sizes leave that open, to the other operands'."""
    order = (spec, problem.x, problem.y, problem.w)
    layout = next((layout for each in order if (layout := _nearest(each)) is not None), Layout.NCHW)
    return TensorSpec(shape, spec.dtype, dense_strides(shape, layout))


def _nearest(spec: TensorSpec) -> Layout | None:
    """None where there is one channel or one position only, which lie alike either way."""
    spatial = [stride for size, stride in zip(spec.shape[2:], spec.strides[2:], strict=True) if size > 1]
    if spec.shape[1] == 1 or not spatial:
        return None
    return Layout.NHWC if spec.strides[1] < min(spatial) else Layout.NCHW
