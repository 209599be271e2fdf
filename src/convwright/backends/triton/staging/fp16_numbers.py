"""fp32 numbers staged as one or two fp16 numbers: algorithms, memory, time."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.multiprocessor import MOST_WARPS, REGISTERS, products_per_cycle, shared_limit
from convwright.backends.triton.operands import group_sizes, is_in_planes
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem


def split(kernel: str) -> Algorithm:
    """Each number as two fp16 numbers: as accurate as fp32."""
    return Algorithm(f"{kernel}-{Arithmetic.FP16X3}", Arithmetic.FP16X3, packed=True)


def scaled(kernel: str) -> Algorithm:
    """Each number as one fp16 number: as accurate as TF32."""
    return Algorithm(f"{kernel}-{Arithmetic.SCALED_FP16}", Arithmetic.SCALED_FP16, packed=True)


def numbers_of(algorithm: Algorithm) -> int:
    """The number of fp16 numbers per fp32 number."""
    return 2 if algorithm.arithmetic is Arithmetic.FP16X3 else 1


NUMBER_BYTES, SCALE_BYTES = 2, 4
_ALIGNED = 256
# With fewer channels a staged block contains mostly zeros.
_LEAST_CHANNELS = 16


def extents(problem: ConvProblem) -> tuple[int, int, int]:
    """Planes, rows and columns of an image that some tap reads, including borders. The number of columns is even for
    NCHW."""
    read = [(axis.out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1 for axis in problem.axes]
    deep, high, wide = [1] * (3 - len(read)) + read
    # With an odd width the compiler does not see that pixels in NCHW are contiguous, and reads them by channels:
    # staging 105 MB took 68 µs instead of 31 (H200).
    return deep, high, wide + wide % 2 if is_in_planes(problem.x) else wide


def padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def aligned(nbytes: int) -> int:
    """Including the alignment of what follows."""
    return padded(nbytes, _ALIGNED)


def channels_reason(problem: ConvProblem, least_outputs: int = _LEAST_CHANNELS) -> str | None:
    """Why staging the channels of ``problem`` is not worthwhile; None if it may be."""
    inputs, outputs = group_sizes(problem)
    if inputs >= _LEAST_CHANNELS and outputs >= least_outputs:
        return None
    least = f"at least {_LEAST_CHANNELS} input and {least_outputs} output channels"
    return f"needs {'groups with ' if problem.groups > 1 else ''}{least}, got {inputs} and {outputs}"


# A single 128x128 tile takes 2,700 cycles for a step of 64, and three of 64x64 take the same together (H200). At this
# rate loads explain 1,640 and 2,460 of them; each block idles for this much more.
_LOADED_BYTES_PER_CYCLE = 40
_IDLE_CYCLES = 700
_REGISTERS_BESIDE_SUMS = 72


def loaded_bytes(bm: int, bn: int, bk: int, algorithm: Algorithm) -> int:
    """Of one step of a tile."""
    return (bm + bn) * bk * numbers_of(algorithm) * NUMBER_BYTES


def blocks_together(sums: int, warps: int, shared_bytes: int, device: DeviceFacts) -> int:
    """The number of blocks that fit on a multiprocessor if each holds ``sums`` sums in registers."""
    registers = sums // (32 * warps) + _REGISTERS_BESIDE_SUMS
    by_registers = REGISTERS // (32 * warps * registers)
    return max(1, min(shared_limit(device) // shared_bytes, by_registers, MOST_WARPS // warps))


def step_cycles(bm: int, bn: int, bk: int, algorithm: Algorithm, at_once: int) -> float:
    """Of one step, if ``at_once`` blocks share a multiprocessor and hide each other's idle time."""
    products = bm * bn * bk / products_per_cycle(algorithm.arithmetic, bm)
    busy = max(products, loaded_bytes(bm, bn, bk, algorithm) / _LOADED_BYTES_PER_CYCLE)
    return max(at_once * busy, busy + _IDLE_CYCLES) / at_once
