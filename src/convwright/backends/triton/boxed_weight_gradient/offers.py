"""A weight's gradient in boxes: what it serves, and what its kernel is told about a problem."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.boxed_weight_gradient.tiles import (
    Tile,
    best_tiles,
    cycles,
    products_of,
    reads_beside,
    tiled_products,
)
from convwright.backends.triton.boxes.copying import DTYPES, architecture_reason, copying_reason, stride_reason
from convwright.backends.triton.boxes.window import Window
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.launching.kernel_call import TensorMap
from convwright.backends.triton.operands import operand_reason, shape_reason, weight_reason
from convwright.backends.triton.parts.sums import SUM_BYTES
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "boxed-weight-gradient"
NAME = f"triton/{KERNEL}"
_LEAST_CHANNELS = 16


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem) or architecture_reason(device)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in best_tiles(problem, device, count=MOST_TILES):
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    arithmetic, sums = native_arithmetic(problem.dtype, tf32=False), tile.parts * problem.w.numel * SUM_BYTES
    return Candidate(
        problem, "triton", KERNEL, tile.config, arithmetic, sums, True, Source.RULE,
        tiled=tiled_products(tile, problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Tile.of(candidate), candidate.problem, device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes gradients of weights, not {problem.direction}"
    images = {"input": problem.x, "gradient": problem.y}
    return (
        shape_reason(problem, DTYPES, volumes=True)
        or operand_reason(problem, images)
        or weight_reason(problem)
        or _channels_reason(problem)
        or stride_reason(problem)
        or copying_reason(images)
    )


def _channels_reason(problem: ConvProblem) -> str | None:
    if min(problem.c, problem.k) >= _LEAST_CHANNELS:
        return None
    return f"serves at least {_LEAST_CHANNELS} input and output channels, got {problem.c} and {problem.k}"


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """How many programs the launch of the product needs."""
    return products_of(tile, problem) * tile.parts


def constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool]:
    """What the kernel of the product is compiled for."""
    window = Window.of(problem)
    told = window.constants(window.box(tile.pixels))
    del told["FLIP"]  # which the kernel that adds the parts sees to
    sides = dict(zip(("BESIDE_D", "BESIDE_H", "BESIDE_W"), reads_beside(tile, problem), strict=True))
    return told | sides | {"PARTS": tile.parts, "BM": tile.bm, "BN": tile.bn}


def maps(problem: ConvProblem, tile: Tile) -> dict[str, TensorMap]:
    """What the copy engine is told of the operands."""
    window = Window.of(problem)
    box = window.box(tile.pixels)
    return {
        "x": window.read.map(problem.c, box, tile.bm, window.stride),
        "dy": window.written.map(problem.k, box, tile.bn, (1, 1, 1)),
    }
