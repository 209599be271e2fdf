"""Bring the cache into a known state before each call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import torch
from torch import Tensor

from convwright.errors import BadInput
from convwright.measuring.hardware.machine import text_of

# Caches do not evict strictly in the order of use, so one cache size of other data does not empty them.
_CUDA_SIZES = 3
_CPU_SIZES = 4
_UNKNOWN_CACHE_BYTES = 64 * 2**20
_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


class Cache(StrEnum):
    """The state of the cache when a call begins.

    HOT: what the last call left, so small operands stay in the cache. COLD: none of the call's operands. NETWORK: only
    the operands named as warm: in a network the layer before has just written a convolution's input, but the weight was
    last read one inference ago.
    """

    HOT = "hot"
    COLD = "cold"
    NETWORK = "network"


def before_each(
    cache: Cache, device: torch.device | str, *, warm: Sequence[Tensor] = ()
) -> Callable[[], object] | None:
    """What to run before each call to bring the cache into this state; None if nothing is needed.

    >>> before_each(Cache.HOT, "cpu") is None
    True
    """
    if not isinstance(warm, Sequence):
        raise BadInput(f"`warm` must be a sequence of tensors, got {type(warm).__name__}")
    if (cache is Cache.NETWORK) != bool(warm):
        raise BadInput(
            f"cache 'network' needs `warm`, the tensors that are in the cache, and no other state takes it; "
            f"got cache {cache.value!r} with {len(warm)} tensors"
        )
    if cache is Cache.HOT:
        return None
    where = torch.device(device)
    for tensor in warm:
        if not isinstance(tensor, Tensor):
            raise BadInput(f"`warm` must be tensors, got one {type(tensor).__name__} among them")
        if tensor.device.type != where.type:
            raise BadInput(f"`warm` tensors must be on the device of the call, {where}, got one on {tensor.device}")
    return _Before(Flush(where), warm)


class _Before:
    """Empties the cache, then reads the tensors that must be warm."""

    def __init__(self, flush: Flush, warm: Sequence[Tensor]) -> None:
        self._flush = flush
        self._warm = [tensor.detach() for tensor in warm]

    def __call__(self) -> None:
        self._flush()
        for tensor in self._warm:
            _numbers(tensor).sum()


class Flush:
    """Reads enough other memory to replace everything in the cache.

    It reads rather than writes: written lines stay dirty in the cache, and writing them back would slow down the next
    call.
    """

    def __init__(self, device: torch.device) -> None:
        nbytes = _flush_bytes(device)
        # Not zeros: untouched memory is one shared page of zeros, which a CPU's cache holds.
        self._buffer = torch.ones(nbytes // 4, dtype=torch.float32, device=device)
        self._sum = torch.empty((), dtype=torch.float32, device=device)

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    def __call__(self) -> None:
        torch.sum(self._buffer, dim=0, out=self._sum)


def _flush_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return _CUDA_SIZES * int(torch.cuda.get_device_properties(device).L2_cache_size)
    return _CPU_SIZES * last_level_cache_bytes(threads=torch.get_num_threads())


def last_level_cache_bytes(*, threads: int, root: Path = _CPUS) -> int:
    """The total size of the last-level caches that this many threads can fill. CPUs of several dies have one on each.

    If the system does not report it, 64 MiB are assumed.
    """
    found: dict[str, int] = {}
    for cpu in _own_cpus():
        levels = {text_of(index / "level"): index for index in (root / f"cpu{cpu}" / "cache").glob("index*")}
        if levels:
            last = levels[max(levels)]
            found[text_of(last / "shared_cpu_list")] = _size_bytes(text_of(last / "size"))
    return sum(sorted(found.values(), reverse=True)[:threads]) or _UNKNOWN_CACHE_BYTES


def _numbers(tensor: Tensor) -> Tensor:
    """The same memory as a dtype that PyTorch can sum; it cannot sum 8-bit types."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _own_cpus() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def _size_bytes(text: str) -> int:
    """
    >>> _size_bytes("32768K")
    33554432
    """
    number, unit = text[:-1], text[-1:]
    return int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0
