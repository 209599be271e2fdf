"""Expressions and copies by generated kernels: supported problems and launches."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.by_role.served import DTYPES, MOST_PROGRAMS, offered, why_not_served
from convwright.backends.triton.elementwise.source import NAME as KERNEL
from convwright.backends.triton.elementwise.source import source
from convwright.backends.triton.elementwise.tile import Tile, tiles
from convwright.backends.triton.elementwise.walk import Walk
from convwright.backends.triton.generated.kernel import kernel
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall, interpreting
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.expression import Cast, steps
from convwright.core.kinds.pointwise import PointwiseProblem

ALGORITHM = "elementwise"
NAME = f"triton/{ALGORITHM}"
# Factors on the time of moving the operands. Not measured yet; they only order tiles.
_LEAST_US, _TIMES, _TIMES_UNALIGNED = 2.0, 1.2, 4.0


def offers(problem: PointwiseProblem | CopyProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every tile worth trying, or the reason why none supports the problem."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    walk = Walk.of(problem)
    for tile in tiles(walk):
        if tile.parts * tile.programs(walk) <= MOST_PROGRAMS:
            estimated_us = _estimated_us(problem, walk, tile, device)
            yield offered(problem, ALGORITHM, tile.config, estimated_us, tile.workspace_bytes(walk))


def refusal_reason(problem: PointwiseProblem | CopyProblem) -> str | None:
    """Why a generated kernel cannot compute ``problem``; None if it can."""
    stored, rounded = {spec.dtype for spec in problem.operands.values()}, _rounded_to(problem)
    computed = stored if len(stored) > 1 or isinstance(problem, PointwiseProblem) else ()
    reason = why_not_served(problem, computed=computed, rounded=rounded)
    if reason is not None:
        return reason
    return None if rounded <= {*DTYPES} else "rounds only to fp32, fp16 and bf16 inside an expression, got fp64"


def _rounded_to(problem: PointwiseProblem | CopyProblem) -> set[DType]:
    """The dtypes to which a value is rounded."""
    if isinstance(problem, CopyProblem):
        return set() if problem.x.dtype is problem.y.dtype else {problem.y.dtype}
    return {step.dtype for step in steps(problem.expression) if isinstance(step, Cast)} | {problem.y.dtype}


def _estimated_us(problem: PointwiseProblem | CopyProblem, walk: Walk, tile: Tile, device: DeviceFacts) -> float | None:
    if not device.bandwidth_bytes_per_us:
        return None
    crosses = walk.across is not None and not walk.row
    times = _TIMES_UNALIGNED if crosses and not tile.rows else _TIMES
    moved, busy = problem.bytes, 1.0
    if tile.cuts_rows(walk):
        moved += (len(walk.levels) - walk.is_reduced) * (problem.bytes - walk.y.nbytes)
        busy = min(tile.parts * tile.programs(walk) / (device.sm_count or 1), 1.0)
    return _LEAST_US * tile.launches + times * moved / device.bandwidth_bytes_per_us / busy


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch, in order."""
    return tuple(kernel_call(candidate, launch) for launch in range(Tile.of(candidate).launches))


def kernel_call(candidate: Candidate, launch: int = 0) -> KernelCall:
    """One of these kernels. Operands are named by their indices."""
    problem, tile = candidate.problem, Tile.of(candidate)
    walk = Walk.of(problem)
    precise = walk.y.dtype is DType.FP32 and not interpreting()
    named = {f"p{place}": spec for place, spec in enumerate(walk.reads)} | {"y": walk.y}
    pointers: dict[str, tuple[str, int]] = {
        name: (_stored(spec.dtype), max(spec.alignment, spec.dtype.nbytes)) for name, spec in named.items()
    }
    pointers |= {"sums": WORKSPACE} if tile.parts > 1 else {}
    made = kernel(source(walk, tile, precise=precise, launch=launch), KERNEL)
    return KernelCall(made, pointers, {}, tile.programs(walk) * tile.parts_of(walk, launch), tile.warps, 1)


def _stored(dtype: DType) -> DType:
    """The dtype that the kernel is compiled for. A dtype that is only copied, and that the GPU may not support, is
    replaced by another of its size."""
    return DType.INT8 if dtype.narrow else dtype
