"""Products of boxes: what they serve, and what their kernel is told about a problem."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.boxed_gemm.tiles import Tile, best_tiles, cycles, tiled_products
from convwright.backends.triton.boxes.copying import (
    DTYPES,
    aligned_reason,
    architecture_reason,
    copying_reason,
    stride_reason,
)
from convwright.backends.triton.boxes.window import Window
from convwright.backends.triton.gemm.algorithms import GROUP_M, MOST_TILES
from convwright.backends.triton.launching.kernel_call import TensorMap
from convwright.backends.triton.operands import OFFSETS_32_BITS, operand_reason, shape_reason, span
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "boxed-gemm"
NAME = f"triton/{KERNEL}"
_AT_ONCE = 8  # channels, as many as 16 bytes hold


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem) or architecture_reason(device)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in best_tiles(problem, device, count=MOST_TILES):
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", KERNEL, tile.config, native_arithmetic(problem.dtype, tf32=False), 0, True, Source.RULE,
        tiled=tiled_products(tile, Window.of(problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Tile.of(candidate), Window.of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    return (
        shape_reason(problem, DTYPES, volumes=True)
        or operand_reason(problem, {"input": problem.x, "output": problem.y})
        or stride_reason(problem)
        or _channels_reason(problem)
        or aligned_reason("weight", problem.w)
        or copying_reason({"input": problem.x})
        or _written_reason(problem)
    )


def _channels_reason(problem: ConvProblem) -> str | None:
    if problem.c % _AT_ONCE == 0:
        return None
    return f"serves multiples of {_AT_ONCE} input channels, got {problem.c}"


def _writes_boxes(problem: ConvProblem) -> bool:
    """Whether the copy engine takes the output. Of one that ends amid 16 bytes it would write all, which may be
    somebody else's channels."""
    return problem.k % _AT_ONCE == 0 and copying_reason({"output": problem.y}) is None


def _written_reason(problem: ConvProblem) -> str | None:
    spanned = span(problem.y.shape, problem.y.strides)
    if spanned < OFFSETS_32_BITS or _writes_boxes(problem):
        return None
    return f"writes outputs by offsets below 2^31 where the copy engine cannot take them, got {spanned:,} elements"


def constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    window, boxes = Window.of(problem), _writes_boxes(problem)
    images = (window.written.sizes[0], *window.written.strides)
    lying = dict(zip(("N", "Y_N", "Y_D", "Y_H", "Y_W"), (0, 0, 0, 0, 0) if boxes else images, strict=True))
    return window.constants(window.box(tile.pixels)) | lying | {
        "WRITES_BOXES": boxes,
        "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
        "BN": tile.bn, "BK": tile.bk, "GROUP_M": GROUP_M, "PROGRAMS": tile.programs,
    }  # fmt: skip


def maps(problem: ConvProblem, tile: Tile) -> dict[str, TensorMap]:
    """What the copy engine is told of the operands."""
    window = Window.of(problem)
    told = window.maps(window.box(tile.pixels), tile.bn, tile.bk)
    if not _writes_boxes(problem):
        del told["y"]
    elif problem.epilogue.residual:
        told["residual"] = told["y"]
    return told
