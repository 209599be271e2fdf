"""The configurations of the kernel for few output channels, and which few are worth trying on a problem."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import gcd

from convwright.backends.triton.channels_last import pair
from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import sm_count
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

MOST_STRIPS = 6
_MOST_ALIKE = 2  # with as many rows: they differ in how many columns lie where
_LANES = 32
# Registers that sums and weights of a thread may take.
_MOST_REGISTERS = 160
_PRODUCTS_PER_LOAD = 4  # that a multiprocessor issues while it loads once
# A step over so many channels, whose loads are under way together, takes so long where memory is waited for.
_CHANNELS_AT_ONCE, _WAITING_CYCLES = 4, 700


@dataclass(frozen=True, slots=True)
class Strip(Configuration):
    """What one block computes: ``bq`` columns of as many rows of an image as ``rows`` says, for all channels."""

    rows: int
    bq: int
    warps: int

    @property
    def columns_per_thread(self) -> int:
        return self.bq // (_LANES * self.warps)

    def blocks(self, problem: ConvProblem) -> int:
        gap, _ = spacing(problem)
        P, Q = pair(problem.y.shape[2:], 1)
        return problem.n * -(-P // (self.rows * gap)) * gap * -(-Q // self.bq)


STRIPS = tuple(
    Strip(rows, _LANES * warps * columns, warps) for rows, columns, warps in product((1, 2, 4, 8), (1, 2, 4), (1, 2, 4))
)


def spacing(problem: ConvProblem) -> tuple[int, int]:
    """How many rows of the output lie from one row of a strip to the next, and how many dilations what they read.

    The least at which taps of one row of a strip read what others read for another.
    """
    (stride, _), (dilation, _) = pair(problem.stride, 1), pair(problem.dilation, 1)
    common = gcd(stride, dilation)
    return dilation // common, stride // common


def best_strips(problem: ConvProblem, device: DeviceFacts, count: int = MOST_STRIPS) -> tuple[Strip, ...]:
    """The ``count`` strips that should be fastest, by estimate, the best first, and few alike."""
    R, _ = pair(problem.taps, 1)
    fitting = [
        strip for strip in STRIPS
        if strip.rows * strip.columns_per_thread * problem.k + R * problem.k <= _MOST_REGISTERS
    ]  # fmt: skip
    ranked = sorted(fitting, key=lambda strip: _cycles(strip, problem, device))
    alike = Counter[int]()
    chosen = []
    for strip in ranked:
        alike[strip.rows] += 1
        if alike[strip.rows] <= _MOST_ALIKE:
            chosen.append(strip)
    return tuple(chosen[:count])


def _cycles(strip: Strip, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the strips that cannot win."""
    (R, S), (_, apart) = pair(problem.taps, 1), spacing(problem)
    warps = -(-strip.blocks(problem) // sm_count(device)) * strip.warps
    reads = ((strip.rows - 1) * apart + R) * S * strip.columns_per_thread
    weights = R * S * problem.k
    products = weights * strip.rows * strip.columns_per_thread
    step = max(reads + weights, (reads + weights + products) / _PRODUCTS_PER_LOAD)
    return problem.c * (warps * step + _WAITING_CYCLES / _CHANNELS_AT_ONCE)
