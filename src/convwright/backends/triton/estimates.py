"""Estimated times of kernels, to compare configurations of different kernels before any is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convwright.backends.triton.compile_time import COMPILE_S
from convwright.backends.triton.kernels import KernelName
from convwright.backends.triton.operands import is_in_planes
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts

# Measured time by estimate (of the tiles, or of moving the operands) on an H200: NCHW, and channels last. Medians over
# 1,513 configurations for layers of known networks; 93 % took between half and twice that
# (`benchmarks/kernel_estimates.py`). For `taps-first`, over 223 configurations of seven layers, all did.
_TIMES: Mapping[KernelName, tuple[float, float]] = {
    "staged-gemm": (1.25, 1.25),
    "boxed-gemm": (1.0, 1.0),
    "folded-gemm": (2.2, 1.8),
    "implicit-gemm": (2.6, 1.2),
    "banded-gemm": (1.2, 1.2),
    "wide-direct": (1.35, 1.5),
    "taps-first": (1.6, 1.6),
    "direct": (2.3, 2.0),
    "winograd": (1.7, 1.7),
    "input-gradient": (4.0, 3.0),
    "staged-weight-gradient": (1.6, 1.6),
    "boxed-weight-gradient": (0.7, 0.7),
    "weight-gradient": (2.5, 2.5),
    "few-weights": (1.6, 1.9),
}
_LEAST_US = 2.0  # from the start of an empty kernel to its end
_CLOCK_MHZ = 1500.0  # of a device that does not report it


def estimated(candidate: Candidate, kernel: KernelName, cycles: float, device: DeviceFacts) -> Candidate:
    """The candidate with its estimated time, from the cycles of the busiest multiprocessor."""
    problem = candidate.problem
    busy_us = cycles / (device.clock_mhz or _CLOCK_MHZ)
    if device.bandwidth_bytes_per_us:
        busy_us = max(busy_us, problem.bytes / device.bandwidth_bytes_per_us)
    in_planes, channels_last = _TIMES[kernel]
    times = in_planes if is_in_planes(problem.x) else channels_last
    compile_s = candidate.compile_s or COMPILE_S
    return replace(candidate, estimated_us=_LEAST_US + times * busy_us, compile_s=compile_s)
