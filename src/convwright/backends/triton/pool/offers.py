"""Pooling by generated kernels: what is served, and what a kernel is launched with."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.generated.kernel import kernel
from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.pool.source import NAME as KERNEL
from convwright.backends.triton.pool.source import source
from convwright.backends.triton.pool.tile import Tile, tiles
from convwright.backends.triton.pool.walk import Walk
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType, plain_arithmetic
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling

ALGORITHM = "pool"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP32, DType.FP16, DType.BF16)
_MOST_BYTES = 2**40
_MOST_PROGRAMS = 2**31 - 1
# Not measured on any GPU yet: for an order beside other candidates.
_LEAST_US, _TIMES = 2.0, 1.5


def offers(problem: PoolProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every tile worth trying, or why none can serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    walk = Walk.of(problem)
    bandwidth = device.bandwidth_bytes_per_us
    estimated_us = _LEAST_US + _TIMES * problem.bytes / bandwidth if bandwidth else None
    for tile in tiles(walk):
        if tile.programs(walk) <= _MOST_PROGRAMS:
            yield Candidate(
                problem, "triton", ALGORITHM, tile.config, plain_arithmetic(problem.dtype), 0, True, Source.RULE,
                compiles=True, estimated_us=estimated_us,
            )  # fmt: skip


def refusal_reason(problem: PoolProblem) -> str | None:
    """Why a generated kernel cannot compute ``problem``, or None where it can."""
    if problem.dtype not in _DTYPES:
        return f"computes {', '.join(_DTYPES)}, not {problem.dtype}"
    if not problem.y.numel:
        return f"needs something to compute, got an output of {problem.y.shape}"
    for name, spec in problem.operands.items():
        if any(stride < 0 for stride in spec.strides):
            return f"serves strides that are not negative, got {spec.strides} of `{name}`"
        if spec.span_bytes >= _MOST_BYTES:
            return f"serves operands that span less than 2^40 bytes, got {spec.span_bytes:,} of `{name}`"
    if problem.dtype is DType.BF16 and problem.pooling is Pooling.AVG and interpreting():
        return "cannot run in Triton's interpreter, which cuts bf16 off and does not round"
    return None


def kernel_call(candidate: Candidate) -> KernelCall:
    """What the driver is asked to launch."""
    problem: PoolProblem = candidate.problem
    tile, walk = Tile.of(candidate), Walk.of(problem)
    precise = problem.dtype is DType.FP32 and not interpreting()
    pointers = {name: (spec.dtype, max(spec.alignment, spec.dtype.nbytes)) for name, spec in problem.operands.items()}
    made = kernel(source(walk, tile, precise=precise), KERNEL)
    return KernelCall(made, pointers, {}, tile.programs(walk), tile.warps, 1)
