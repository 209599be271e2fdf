"""Pooling by generated kernels: supported problems and launches."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.by_role.served import MOST_PROGRAMS, offered, why_not_served
from convwright.backends.triton.generated.kernel import kernel
from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.pool.source import NAME as KERNEL
from convwright.backends.triton.pool.source import source
from convwright.backends.triton.pool.tile import Tile, tiles
from convwright.backends.triton.pool.walk import Walk
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling

ALGORITHM = "pool"
NAME = f"triton/{ALGORITHM}"
# Not measured yet; only for comparison with other candidates.
_LEAST_US, _TIMES = 2.0, 1.5


def offers(problem: PoolProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every tile worth trying, or the reason why none supports the problem."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    walk = Walk.of(problem)
    bandwidth = device.bandwidth_bytes_per_us
    estimated_us = _LEAST_US + _TIMES * problem.bytes / bandwidth if bandwidth else None
    for tile in tiles(walk):
        if tile.programs(walk) <= MOST_PROGRAMS:
            yield offered(problem, ALGORITHM, tile.config, estimated_us)


def refusal_reason(problem: PoolProblem) -> str | None:
    """Why a generated kernel cannot compute ``problem``; None if it can."""
    rounded = [problem.dtype] if problem.pooling is Pooling.AVG else []
    return why_not_served(problem, computed=[problem.dtype], rounded=rounded)


def kernel_call(candidate: Candidate) -> KernelCall:
    """The kernel to launch."""
    problem: PoolProblem = candidate.problem
    tile, walk = Tile.of(candidate), Walk.of(problem)
    precise = problem.dtype is DType.FP32 and not interpreting()
    pointers = {name: (spec.dtype, max(spec.alignment, spec.dtype.nbytes)) for name, spec in problem.operands.items()}
    made = kernel(source(walk, tile, precise=precise), KERNEL)
    return KernelCall(made, pointers, {}, tile.programs(walk), tile.warps, 1)
