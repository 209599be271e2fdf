"""Launches kernels that take numbers after their operands. The driver alone does it: no C compiler is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from convwright.backends.triton.launching.tensor_map import SCRATCH_POINTERS

_MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_…
_LARGEST_SHARED_BYTES_BY_DEFAULT = 48 * 1024


def launcher(
    compiled: Any, blocks: int, operands: Mapping[str, Tensor | None], sizes: Mapping[str, int]
) -> Callable[[], None]:
    """What launches Triton's ``compiled`` kernel on PyTorch's current stream."""
    types = {name: kind for name, kind in compiled.src.signature.items() if kind != "constexpr"}
    given: list[Any] = [
        ctypes.c_int32(sizes[name]) if name in sizes else _address(operands[name])
        for name in compiled.src.fn.arg_names
        if name in types
    ]
    given += [ctypes.c_void_p(0) for _ in range(SCRATCH_POINTERS)]
    parameters = (ctypes.c_void_p * len(given))(*(ctypes.addressof(each) for each in given))
    function, metadata = _function(compiled), compiled.metadata

    def launch(given: list[Any] = given) -> None:  # which keeps what the parameters point to
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        block = 32 * metadata.num_warps, 1, 1
        _run("cuLaunchKernel", function, blocks, 1, 1, *block, metadata.shared, stream, parameters, None)

    return launch


def _address(operand: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if operand is None else operand.data_ptr())


def _function(compiled: Any) -> ctypes.c_void_p:
    """The kernel, loaded to the context that PyTorch uses."""
    torch.zeros(1, device="cuda")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _run("cuModuleLoadData", ctypes.byref(module), compiled.asm["cubin"])
    _run("cuModuleGetFunction", ctypes.byref(function), module, compiled.metadata.name.encode())
    if compiled.metadata.shared > _LARGEST_SHARED_BYTES_BY_DEFAULT:
        _run("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_BYTES, compiled.metadata.shared)
    return function


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _run(name: str, *arguments: Any) -> None:
    status = getattr(_driver(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} of the CUDA driver failed with status {status}")
