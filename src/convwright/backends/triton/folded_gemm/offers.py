"""Products on folded rows of taps, for images of few channels: what they serve, and what their kernels are told."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.folded_gemm.algorithms import DTYPES, KERNEL, algorithm_of, algorithms_of
from convwright.backends.triton.folded_gemm.folding import Folding
from convwright.backends.triton.folded_gemm.tiles import FoldedTile, best_tiles, cycles, steps
from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.implicit_gemm.tiles import tiles_of
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    lying_reason,
    offsets_are_wide,
    power_of_two,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
)
from convwright.backends.triton.staged_gemm.offers import product_constants, window_of
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

NAME = f"triton/{KERNEL}"
# Of more channels each tap fills a step by itself.
_MOST_CHANNELS, _LEAST_OUTPUTS = 8, 8
_MOST_OF_A_STEP, _MOST_OF_A_ROW = 64, 32_768
_MOST_OF_A_BLOCK = 2**20  # numbers, of which Triton takes no more at once


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    for algorithm in algorithms_of(problem.dtype):
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_tiles(problem, algorithm, device, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: FoldedTile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes(problem, algorithm), True,
        Source.RULE, tiled=tiles_of(tile, problem) * tile.products(steps(problem)), compiles=True,
    )  # fmt: skip


def workspace_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """Of the input and, behind it, the weight as they are laid."""
    folding = Folding.of(problem, algorithm)
    return folding.nbytes + folding.packed_bytes(steps(problem), problem.k)


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(FoldedTile.of(candidate), candidate.problem, algorithm_of(candidate), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``, or None where they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, DTYPES, volumes=True)
        or _window_reason(problem)
        or lying_reason({"output": problem.y})
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _folded_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    if problem.c > _MOST_CHANNELS or problem.k < _LEAST_OUTPUTS:
        bounds = f"at most {_MOST_CHANNELS} input and at least {_LEAST_OUTPUTS} output channels"
        return f"serves {bounds}, got {problem.c} and {problem.k}"
    if problem.taps[-1] == 1 or problem.dilation[-1] != 1:
        got = f"{problem.taps[-1]} with dilation {problem.dilation[-1]}"
        return f"serves several taps side by side in a row, got {got}"
    return None


def _folded_reason(problem: ConvProblem) -> str | None:
    folding = Folding.of(problem, algorithms_of(problem.dtype)[0])
    if folding.step > _MOST_OF_A_STEP:
        most = _MOST_OF_A_STEP // folding.channels
        return f"serves at most {most} taps in a row for {problem.c} channels, got {folding.taps}"
    if folding.width * folding.channels > _MOST_OF_A_ROW:
        return f"serves rows of at most {_MOST_OF_A_ROW // folding.channels:,} pixels, got {folding.width:,}"
    weights = steps(problem) * folding.step
    if power_of_two(weights) > _MOST_OF_A_BLOCK:
        return f"lays at most {_MOST_OF_A_BLOCK:,} numbers for an output channel at once, got {weights:,}"
    staged = folding.each * folding.numbers
    return None if staged < MOST_ELEMENTS else f"stages inputs as at most 2^30 numbers, got {staged:,}"


def laying_constants(problem: ConvProblem, algorithm: Algorithm) -> dict[str, int | bool]:
    """What the kernel that lays the input and the weight is compiled for; a program lays a row of the input, or what
    belongs to an output channel."""
    told = window_of(problem) | weight_strides(problem) | weight_depth(problem)
    folding, rows = Folding.of(problem, algorithm), steps(problem)
    needed = (
        "C", "H", "W", "D", "X_N", "X_C", "X_H", "X_W", "X_D", "TOP", "LEFT", "FRONT",
        "R", "S", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP",
    )  # fmt: skip
    return {name: told[name] for name in needed} | folding.constants | {
        "WIDE": offsets_are_wide(problem.x), "K": problem.k, "ROWS": rows, "STEP": folding.step,
        "X_BLOCK": power_of_two(folding.width * folding.channels), "W_BLOCK": power_of_two(rows * folding.step),
    }  # fmt: skip


def constants(problem: ConvProblem, algorithm: Algorithm, tile: FoldedTile) -> dict[str, int | bool | str]:
    """What the kernel of the products is compiled for: as for any staged input, with the taps of a row as one."""
    folding = Folding.of(problem, algorithm)
    return product_constants(problem, tile) | folding.constants | {
        "S": 1, "G": 1, "X_PIXEL": folding.channels, "X_LOW": folding.numbers,
        "FOLDED": folding.taps * folding.channels, "WHOLE": folding.whole and not folding.scaled,
    }  # fmt: skip


def held_constants(problem: ConvProblem, algorithm: Algorithm, tile: FoldedTile) -> dict[str, int | bool | str]:
    """The same for the kernel that keeps the weight."""
    told, folding = constants(problem, algorithm, tile), Folding.of(problem, algorithm)
    unknown = ("S", "G", "DILATION_W", "X_PIXEL", "GROUP_M", "PARTS")
    assert tile.programs is not None
    return {name: value for name, value in told.items() if name not in unknown} | {
        "WHOLE": folding.whole, "PROGRAMS": tile.programs, "STAGES": tile.stages,
    }  # fmt: skip
