"""Peak extra memory of a call, including its result; and bringing the heap into the state of a long-running process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_CLEAR_PEAK = "5"


# glibc maps blocks above a threshold separately, and raises that threshold when such a block is freed: up to 32 MiB,
# and to twice that at the end of a heap.
_LARGE_BYTES = 30_000_000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LEAST_MAPPED, _MOST_KEPT = 1 << 17, 1 << 25
_PAGE_BYTES, _MOST_HELD = 4096, 8


@cache
def settle_heap() -> None:
    """Free one large block, once per process, as any program eventually does.

    Before that, glibc maps blocks above 128 kB anew for each call and returns them, which costs page faults: PyTorch's
    own convolution of a 225 x 220 image took 4.5 to 5.9 ms, and 0.6 ms after the first large block was freed. Times
    before and after that moment are not comparable. The block's pages are not touched.
    """
    torch.empty(_LARGE_BYTES, dtype=torch.uint8)


def peak_extra_bytes(call: Callable[[], object], device: torch.device | str) -> int | None:
    """The most memory that ``call`` holds beyond what was held before; None if unknown.

    The call runs once before, so that one-time allocations do not count. On a GPU this is the memory from PyTorch's
    allocator, exactly; PyTorch's own peak statistics of that device are reset. On a CPU it is the memory of the whole
    process, in pages, which includes allocations of libraries and other threads.
    """
    where = torch.device(device)
    call()
    if where.type == "cuda":
        return _cuda_bytes(call, where)
    return _cpu_bytes(call) if where.type == "cpu" else None


def _cuda_bytes(call: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _cpu_bytes(call: Callable[[], object]) -> int | None:
    with _blocks_mapped_anew():
        try:
            _CLEAR.write_text(_CLEAR_PEAK)
            before = _status_bytes("VmRSS")
            call()
            return max(0, _status_bytes("VmHWM") - before)
        except (OSError, KeyError):  # only Linux reports it, and a container may hide it
            return None


@contextmanager
def _blocks_mapped_anew() -> Iterator[None]:
    """Give free memory back to the system first: freed memory that the process reuses would not show as extra.

    Free blocks and the end of this thread's heap are returned. The end of the main heap cannot be returned if another
    allocator has moved the program's break, so it is held meanwhile. Afterwards glibc's threshold is as it would have
    been.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_M_TRIM_THRESHOLD, 0)
    libc.mallopt(_M_MMAP_THRESHOLD, _LEAST_MAPPED)
    libc.free(libc.malloc(_LEAST_MAPPED * 3 // 4))
    libc.malloc_trim(0)
    held: list[int] = []
    while len(held) < _MOST_HELD and (left := libc.mallinfo2().keepcost) > _LEAST_MAPPED:
        held.append(libc.malloc(left - _PAGE_BYTES))
    try:
        yield
    finally:
        for block in held:
            libc.free(block)
        libc.mallopt(_M_MMAP_THRESHOLD, _MOST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _MOST_KEPT)


class _MallInfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


@cache
def _glibc() -> Any:
    """glibc's functions for its heaps, with signatures; None if they do not exist."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
        libc.malloc_trim.argtypes = (ctypes.c_size_t,)
        libc.mallinfo2.restype, libc.mallinfo2.argtypes = _MallInfo2, ()
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
        libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    except (OSError, TypeError, AttributeError):
        return None
    return libc


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)
