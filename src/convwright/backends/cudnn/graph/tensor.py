"""An operand as cuDNN's graph API describes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from convwright.backends.cudnn.graph.attributes import Attribute, Kind
from convwright.backends.cudnn.graph.descriptor import Descriptor
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides

# cuDNN's numbers. The sums of int8 have a dtype that no operand has.
DATA_TYPE = {
    DType.FP32: 0, DType.FP64: 1, DType.FP16: 2, DType.INT8: 3, DType.BF16: 9, DType.FP8_E4M3: 12, DType.FP8_E5M2: 13,
}  # fmt: skip
INT32 = 4


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """Sizes and strides (in elements) in at least two spatial dimensions, and the alignment in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int
    dtype: DType

    @classmethod
    def of(cls, spec: TensorSpec, layout: Layout) -> Self:
        """``spec``, read in ``layout`` if its strides also fit that. One dimension becomes two with height 1."""
        strides = dense_strides(spec.shape, layout) if _fits_both(spec) else spec.strides
        if len(spec.shape) != 3:
            return cls(spec.shape, strides, spec.alignment, spec.dtype)
        (n, c, w), (per_n, per_c, per_w) = spec.shape, strides
        return cls((n, c, 1, w), (per_n, per_c, w * per_w, per_w), spec.alignment, spec.dtype)

    def virtual(self, uid: int, data_type: int) -> Descriptor:
        """The same tensor as an intermediate result that is not stored."""
        return replace(self, alignment=16)._described(uid, data_type, virtual=True)

    def descriptor(self, uid: int) -> Descriptor:
        return self._described(uid, DATA_TYPE[self.dtype], virtual=False)

    def _described(self, uid: int, data_type: int, *, virtual: bool) -> Descriptor:
        return (
            Descriptor(Kind.TENSOR)
            .set(Attribute.TENSOR_UID, uid)
            .set(Attribute.TENSOR_DATA_TYPE, data_type)
            .set(Attribute.TENSOR_SIZES, *self.sizes)
            .set(Attribute.TENSOR_STRIDES, *self.strides)
            .set(Attribute.TENSOR_ALIGNMENT_BYTES, self.alignment)
            .set(Attribute.TENSOR_IS_VIRTUAL, virtual)
            .finalize()
        )


def common_layout(problem: ConvProblem) -> Layout:
    """The layout for operands whose strides fit two layouts, such as a 1x1 filter.

    If cuDNN read such an operand as NCHW beside NHWC ones, it would lose its best engines or copy the operand.
    """
    layouts = {spec.layout for spec in (problem.x, problem.w, problem.y) if not _fits_both(spec)}
    return Layout.NCHW if Layout.NCHW in layouts and Layout.NHWC not in layouts else Layout.NHWC


def _fits_both(spec: TensorSpec) -> bool:
    # A spec whose strides fit both layouts reports NCHW.
    return spec.layout is Layout.NCHW and spec.dense(Layout.NHWC).layout is Layout.NCHW
