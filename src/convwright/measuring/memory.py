"""Peak extra memory: the most that one call holds beyond what was held before it, its result included; and the heap
as it is in a process that has run for a while."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_CLEAR_PEAK = "5"


# The largest block that glibc will learn to keep is 32 MiB.
_LARGE_BYTES = 30_000_000


@cache
def settle_heap() -> None:
    """Free one large block, once per process, as any program does sooner or later.

    Until then glibc maps blocks of more than 128 kB anew for each call and gives them back, which costs page faults:
    PyTorch's own convolution of a 225 x 220 image took 4.5 to 5.9 ms, and 0.6 ms behind the first large block that was
    freed. What is compared on either side of that moment is not comparable. The block's pages are not touched.
    """
    torch.empty(_LARGE_BYTES, dtype=torch.uint8)


def peak_extra_bytes(call: Callable[[], object], device: torch.device | str) -> int | None:
    """The most memory that ``call`` holds at any moment beyond what was held before; None where it cannot be known.

    The call runs once before, so that what is allocated once and for all is not counted. On a GPU it is what PyTorch's
    allocator gave out, to the byte; PyTorch's own peak statistics of that device start anew. On a CPU it is what the
    process as a whole held, in pages: that sees what libraries allocate for themselves, and other threads as well.
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
    _give_back_free_memory()
    try:
        _CLEAR.write_text(_CLEAR_PEAK)
        before = _status_bytes("VmRSS")
        call()
        return max(0, _status_bytes("VmHWM") - before)
    except (OSError, KeyError):  # Linux alone tells, and a container may hide it.
        return None


def _give_back_free_memory() -> None:
    """Memory that the last call freed may still belong to the process: reused, it would not show as more."""
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (OSError, TypeError, AttributeError):  # This is glibc's own function.
        return


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)
