"""Rates and limits of a multiprocessor, for rough estimates that drop configurations that cannot win."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic

# Shared memory that one block may use. An unlisted architecture gets the smallest value.
_SHARED_BYTES = {80: 166_912, 86: 101_376, 87: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 103: 232_448}
_LEAST_SHARED_BYTES = 101_376

# Multiply-adds per cycle and multiprocessor on Hopper. Only their ratios matter, which are similar on other devices.
_PRODUCTS_PER_CYCLE = {
    Arithmetic.FP16_ACC32: 2048,
    Arithmetic.FP16_ACC16: 2048,
    Arithmetic.BF16_ACC32: 2048,
    Arithmetic.INT8: 4096,
    Arithmetic.FP8_ACC32: 4096,
    Arithmetic.TF32: 1024,
    Arithmetic.TF32X3: 1024 / 3,
    Arithmetic.FP16X3: 2048 / 3,
    Arithmetic.SCALED_FP16: 2048,
}
REGISTERS = 65_536
CACHE_BYTES_PER_CYCLE = 32
SHARED_BYTES_PER_CYCLE = 128
MOST_WARPS = 16  # for kernels that use this many registers
BLOCK_CYCLES = 1500  # from a block's start to its first product, plus its epilogue
STEP_CYCLES = 100  # barriers and waits of one step, unless other blocks hide them
MORE_KERNEL_CYCLES = 2500  # for a kernel that waits for another
_SM_COUNT = 100  # of a device that does not report it


def shared_limit(device: DeviceFacts) -> int:
    """Bytes of shared memory that one block may use."""
    name = device.architecture.removeprefix("sm_")
    return _SHARED_BYTES.get(int(name), _LEAST_SHARED_BYTES) if name.isdigit() else _LEAST_SHARED_BYTES


def sm_count(device: DeviceFacts) -> int:
    return device.sm_count or _SM_COUNT


def parts_that_fill(
    tiles: int, steps: int, blocks: Iterable[int], *, least: int = 1, fewest_steps: int = 1
) -> list[int]:
    """Numbers of parts for the ``steps`` of so many tiles: the ``least``, and those with about as many ``blocks`` as
    fill all multiprocessors evenly. No part is empty, and parts have at least ``fewest_steps`` on average."""
    wanted = {least, *(max(each // tiles, least) for each in blocks)}
    most = steps // fewest_steps
    return sorted({-(-steps // -(-steps // min(parts, most))) for parts in wanted}) if most else []


def products_per_cycle(arithmetic: Arithmetic, rows: int) -> float:
    """For tiles of so many rows. Below 64 rows the warp-group instructions cannot be used, and the older ones have half
    the rate."""
    return _PRODUCTS_PER_CYCLE[arithmetic] / (2 if rows < 64 else 1)
