"""A check, beside Triton's interpreter, of every address: kernels read and write within their operands, and write no
element twice. What lies beyond ends a process on a GPU, and of two programs that write one element either may be the
last there; the interpreter minds neither."""

from __future__ import annotations

from bisect import bisect_right
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor
from triton.runtime import interpreter

from convwright.backends.triton.launching.kernel_call import KernelCall

_load, _store = interpreter._interpreter.load, interpreter._interpreter.store
_interpreted = KernelCall.interpreted
_spans: list[tuple[int, int]] = []  # of the operands of the kernel that runs, in order
_written: dict[int, Any] = {}  # of each operand that it writes, which bytes it has written


def span(tensor: Tensor) -> tuple[int, int]:
    """From its first byte to behind its last one."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size() * bool(tensor.numel())


def check() -> None:
    """From here on, for every kernel that this process interprets."""
    interpreter._interpreter = SimpleNamespace(load=_checked_load, store=_checked_store)
    KernelCall.interpreted = _interpreted_within  # type: ignore[method-assign]


def _interpreted_within(call: KernelCall, *operands: Tensor | None) -> None:
    _spans[:] = sorted(span(each) for each in operands if each is not None)
    _written.clear()
    _interpreted(call, *operands)


def _checked_load(addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
    read = addresses[np.asarray(mask, dtype=bool)]
    if read.size:
        _within("read", read, np.dtype(dtype).itemsize)
    return _load(addresses, mask, other, dtype)


def _checked_store(addresses: Any, values: Any, mask: Any) -> Any:
    written, nbytes = addresses[np.asarray(mask, dtype=bool)], values.dtype.itemsize
    if written.size:
        begin, end = _within("written", written, nbytes)
        seen = _written.setdefault(begin, np.zeros(end - begin, np.uint8))
        np.add.at(seen, (written - begin).astype(np.int64), 1)
        assert seen[written - begin].max() == 1, f"an element of an operand of {end - begin} bytes is written twice"
    return _store(addresses, values, mask)


def _within(what: str, addresses: Any, nbytes: int) -> tuple[int, int]:
    """The one operand in which all addresses of an instruction lie."""
    low, high = int(addresses.min()), int(addresses.max()) + nbytes
    place = bisect_right(_spans, low, key=lambda each: each[0]) - 1
    begin, end = _spans[place] if place >= 0 else (0, 0)
    reach = f"{what} from {low - begin} to {high - begin} of an operand of {end - begin} bytes"
    assert begin <= low <= high <= end, reach
    return begin, end
