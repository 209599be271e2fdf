"""Products of boxes: what they serve, and what their kernel is told about a problem."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from convwright.backends.triton.boxed_gemm.boxes import APART_BYTES, Images
from convwright.backends.triton.boxed_gemm.tiles import Tile, best_tiles, cycles, tiled_products
from convwright.backends.triton.boxed_gemm.window import Window
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.kernel_call import TensorMap
from convwright.backends.triton.operands import operand_reason, shape_reason
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

KERNEL = "boxed-gemm"
NAME = f"triton/{KERNEL}"
_ARITHMETIC = {DType.FP16: Arithmetic.FP16_ACC32, DType.BF16: Arithmetic.BF16_ACC32}
_ARCHITECTURE = "sm_90"
_LEAST_STEP = 16
LARGEST_STRIDE = 8  # that the copy engine takes
_GROUP_M = 8


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem) or architecture_reason(device)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in best_tiles(problem, Window.of(problem), device, count=MOST_TILES):
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", KERNEL, tile.config, _ARITHMETIC[problem.dtype], 0, True, Source.RULE,
        tiled=tiled_products(tile, problem, Window.of(problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Tile.of(candidate), candidate.problem, Window.of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    return (
        shape_reason(problem, tuple(_ARITHMETIC))
        or operand_reason(problem, {"input": problem.x, "output": problem.y})
        or _step_reason(problem)
        or copying_reason({"input": problem.x, "weight": problem.w, "output": problem.y}, images=("input", "output"))
    )


def architecture_reason(device: DeviceFacts) -> str | None:
    if device.kind != "cuda" or device.architecture == _ARCHITECTURE:
        return None
    return f"is written for the copy engine of {_ARCHITECTURE}, {device.name} is {device.architecture}"


def _step_reason(problem: ConvProblem) -> str | None:
    if any(stride > LARGEST_STRIDE for stride in problem.stride):
        return f"serves strides up to {LARGEST_STRIDE}, got {'x'.join(map(str, problem.stride))}"
    if problem.c % _LEAST_STEP:
        return f"serves multiples of {_LEAST_STEP} input channels, got {problem.c}"
    return None


def copying_reason(named: Mapping[str, TensorSpec], *, images: Collection[str]) -> str | None:
    """Why the copy engine cannot bring an operand, of which these are ``images``; None where it can."""
    for name, spec in named.items():
        if spec.alignment < APART_BYTES:
            return f"needs a `{name}` that begins at a multiple of {APART_BYTES} bytes, got {spec.alignment}"
        strides = Images.of(spec).strides if name in images else ()
        if any(stride <= 0 or stride * spec.dtype.nbytes % APART_BYTES for stride in strides):
            given = ", ".join(map(str, strides))
            return f"needs strides of multiples of {APART_BYTES} bytes in `{name}`, got {given} elements"
    return None


def constants(problem: ConvProblem, window: Window, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    box = window.box(tile.pixels)
    return window.constants | {
        "K": problem.k, "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
        "IMAGES": box.images, "ROWS": box.rows, "COLUMNS": box.columns, "BN": tile.bn, "BK": tile.bk,
        "GROUP_M": _GROUP_M, "PROGRAMS": tile.programs,
    }  # fmt: skip


def maps(problem: ConvProblem, window: Window, tile: Tile) -> dict[str, TensorMap]:
    """What the copy engine is told of the operands."""
    told = window.maps(problem.k, window.box(tile.pixels), tile.bn, tile.bk)
    return told | ({"residual": told["y"]} if problem.epilogue.residual else {})
