"""Tensor maps of operands for Triton's interpreter."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from convwright.backends.triton.launching.kernel_call import TensorMap


class _Box(list[int]):
    """The sizes of a box, which the interpreter passes on, with the steps, which it does not know."""

    steps: tuple[int, ...]


def mapped(operand: Tensor, tensor_map: TensorMap) -> Any:
    """The operand as a tensor descriptor for the interpreter."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    _let_boxes_step()
    box = _Box(tensor_map.box)
    box.steps = tensor_map.steps
    return TensorDescriptor(operand, list(tensor_map.sizes), list(tensor_map.strides), box)


@cache
def _let_boxes_step() -> None:
    import numpy
    from triton.runtime import interpreter

    convert, pointers = interpreter._implicit_cvt, interpreter.TensorDescHandle.materialize_pointers

    def converted(given: Any) -> Any:
        made = convert(given)
        steps = getattr(getattr(given, "block_shape", None), "steps", None)
        if steps is not None:
            made.handle.steps = steps
        return made

    def stepping(handle: Any, offsets: list[Any]) -> Any:
        steps = getattr(handle, "steps", ())
        if all(step == 1 for step in steps):
            return pointers(handle, offsets)
        # Each step starts at a multiple of the step, but a box may begin between two.
        at, inside = handle.base.data, numpy.ones(handle.block_shape, dtype=bool)
        for dim, (size, step) in enumerate(zip(handle.block_shape, steps, strict=True)):
            shape = [size if each == dim else 1 for each in range(handle.ndim)]
            off = (offsets[dim].data + numpy.arange(size) * step).reshape(shape)
            at = at + (off * handle.strides[dim].data * (handle.base.dtype.element_ty.primitive_bitwidth // 8)).astype(
                numpy.uint64
            )
            inside = inside & (off >= 0) & (off < handle.shape[dim].data)
        return interpreter.TensorHandle(at, handle.base.dtype.scalar), inside

    interpreter._implicit_cvt = converted
    interpreter.TensorDescHandle.materialize_pointers = stepping
