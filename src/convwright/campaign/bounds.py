"""Limits for the problems of a campaign: they must fit into the device's memory and take a few milliseconds."""

from __future__ import annotations

from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic
from convwright.core.kinds.problem import Problem
from convwright.core.limits import beyond_32_bits

# The longest call, estimated at these shares of the device's peak rates.
MOST_US = 20_000.0
_OF_PEAK, _OF_BANDWIDTH = 0.25, 0.5
# Assumed rates of a device without its own: operations per microsecond (per thread for a CPU), and bytes.
_FLOPS_PER_US = {"cpu": 4e3, "cuda": 5e6}
_BYTES_PER_US = {"cpu": 5e3, "cuda": 3e5}
# The largest share of memory for operands: a candidate's workspace may be many times as large, and references are in
# float64.
_OF_MEMORY, _MOST_BYTES = 1 / 32, 2 << 30


def fits(problem: Problem, device: DeviceFacts) -> bool:
    """Whether a problem is small enough to be drawn.

    >>> from convwright.core.problem import ConvProblem
    >>> small = DeviceFacts("a CPU", "cpu", "any", threads=2, memory_bytes=1 << 34)
    >>> [fits(ConvProblem.parse(f"mb{n}ic64ih56oc64kh3ph1"), small) for n in (1, 256)]
    [False, False]
    >>> fits(ConvProblem.parse("ic16ih28oc16kh3ph1"), small)
    True
    """
    nbytes = sum(max(spec.nbytes, spec.span_bytes) for spec in problem.operands.values())
    memory = device.memory_bytes or _MOST_BYTES
    if nbytes > min(_OF_MEMORY * memory, _MOST_BYTES) or beyond_32_bits(problem) is not None:
        return False
    return usual_us(problem, device) <= MOST_US


def usual_us(problem: Problem, device: DeviceFacts) -> float:
    """A typical time of a call: its multiplications and its bytes at usual shares of the peak rates."""
    threads = device.threads or 1
    peak = device.peak(native_arithmetic(problem.dtype, tf32=False)) or _FLOPS_PER_US[device.kind] * threads / _OF_PEAK
    bandwidth = device.bandwidth_bytes_per_us or _BYTES_PER_US[device.kind] / _OF_BANDWIDTH
    return problem.flops / (_OF_PEAK * peak) + problem.bytes / (_OF_BANDWIDTH * bandwidth)
