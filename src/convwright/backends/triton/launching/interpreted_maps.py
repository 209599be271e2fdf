"""Maps of operands, as Triton's interpreter takes them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from convwright.backends.triton.launching.kernel_call import TensorMap


class _Box(list[int]):
    """The sizes of a box, which the interpreter hands on as they are, and what it knows nothing of."""

    steps: tuple[int, ...]


def mapped(operand: Tensor, told: TensorMap) -> Any:
    """The operand with what a kernel is told of it."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    _let_boxes_step()
    box = _Box(told.box)
    box.steps = told.steps
    return TensorDescriptor(operand, list(told.sizes), list(told.strides), box)


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
        # Each step's first element is an element of what lies so far apart; where a box begins may be between two.
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
