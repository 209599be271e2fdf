"""What products of staged numbers take of a multiprocessor, for rough estimates that tell which tiles cannot win."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.multiprocessor import MOST_WARPS, REGISTERS, products_per_cycle, shared_limit
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.extents import NUMBER_BYTES
from convwright.core.device import DeviceFacts

# A 128x128 tile by itself takes 2,700 cycles for a step of 64, and three of 64x64 take as many together (H200): of
# which the loads explain 1,640 and 2,460 where they come at this rate, and this much more passes idle in each block.
_LOADED_BYTES_PER_CYCLE = 40
_IDLE_CYCLES = 700
_REGISTERS_BESIDE_SUMS = 72


def loaded_bytes(bm: int, bn: int, bk: int, algorithm: Algorithm) -> int:
    """Of one step of a tile."""
    return (bm + bn) * bk * numbers_of(algorithm) * NUMBER_BYTES


def blocks_together(sums: int, warps: int, shared_bytes: int, device: DeviceFacts) -> int:
    """How many blocks fit on a multiprocessor that hold so many sums each, in registers."""
    registers = sums // (32 * warps) + _REGISTERS_BESIDE_SUMS
    by_registers = REGISTERS // (32 * warps * registers)
    return max(1, min(shared_limit(device) // shared_bytes, by_registers, MOST_WARPS // warps))


def step_cycles(bm: int, bn: int, bk: int, algorithm: Algorithm, at_once: int) -> float:
    """Of one step, where so many blocks share a multiprocessor and hide what passes idle in each."""
    products = bm * bn * bk / products_per_cycle(algorithm.arithmetic, bm)
    busy = max(products, loaded_bytes(bm, bn, bk, algorithm) / _LOADED_BYTES_PER_CYCLE)
    return max(at_once * busy, busy + _IDLE_CYCLES) / at_once
