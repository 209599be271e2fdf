"""The weight's gradient as an implicit GEMM: what it serves, and what its kernels are told about a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convwright.backends.triton.channels_last import (
    MOST_ELEMENTS,
    operand_reason,
    pair,
    shape_reason,
    span,
    window_constants,
)
from convwright.backends.triton.weight_gradient_tiles import PartedTile, best_configurations
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.problem import ConvProblem

NAME = "triton/weight-gradient"
_SUM_BLOCK, _SUM_ROWS = 128, 32


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One arithmetic of the kernel."""

    name: str
    arithmetic: Arithmetic

    @property
    def id(self) -> str:
        return f"triton/{self.name}"


_OF_DTYPE = {
    DType.FP16: (Algorithm("weight-gradient", Arithmetic.FP16_ACC32),),
    DType.BF16: (Algorithm("weight-gradient", Arithmetic.BF16_ACC32),),
    DType.FP32: (
        Algorithm("weight-gradient-3xtf32", Arithmetic.TF32X3),
        Algorithm("weight-gradient-tf32", Arithmetic.TF32),
    ),
}


def algorithms(dtype: DType) -> tuple[Algorithm, ...]:
    """The algorithms for a storage type; for one that none serves, the first, to refuse by its name."""
    return _OF_DTYPE.get(dtype, _OF_DTYPE[DType.FP16])


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    for algorithm in algorithms(problem.dtype):
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_configurations(problem, algorithm.arithmetic, device):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: PartedTile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes(problem, tile), True,
        Source.RULE, compiles=True,
    )  # fmt: skip


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes gradients of weights, not {problem.direction}"
    operands = {"input": problem.x, "gradient": problem.y}
    return shape_reason(problem, _OF_DTYPE) or operand_reason(problem, operands) or _weight_reason(problem)


def _weight_reason(problem: ConvProblem) -> str | None:
    spanned = span(problem.w.shape, problem.w.strides)
    if spanned >= MOST_ELEMENTS:
        return f"serves weights that span at most 2^30 elements, got {spanned:,}"
    return None


def workspace_bytes(problem: ConvProblem, tile: PartedTile) -> int:
    """What the sums of all parts take, in fp32."""
    return 4 * problem.w.numel * tile.parts if tile.parts > 1 else 0


def blocks(problem: ConvProblem, tile: PartedTile) -> int:
    """How many programs the launch of the product needs."""
    return tile.tiles(problem) * tile.parts


def constants(problem: ConvProblem, arithmetic: Arithmetic, tile: PartedTile) -> dict[str, int | bool]:
    """What the kernel of the product is compiled for."""
    return window_constants(problem) | _weight_strides(problem) | {
        "SPLIT": arithmetic is Arithmetic.TF32X3,
        "FLAT": tile.runs_across_taps(problem.c, prod(problem.taps)),
        "PARTS": tile.parts, "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP": tile.group(problem.dtype.nbytes),
    }  # fmt: skip


def sum_blocks(problem: ConvProblem) -> int:
    return -(-problem.w.numel // _SUM_BLOCK)


def sum_constants(problem: ConvProblem, tile: PartedTile) -> dict[str, int | bool]:
    """What the kernel that adds the parts is compiled for."""
    R, S = pair(problem.taps, 1)
    sizes = {"C": problem.c, "K": problem.k, "R": R, "S": S, "FLIP": problem.flip}
    rows = min(_SUM_ROWS, 1 << (tile.parts - 1).bit_length())
    return sizes | _weight_strides(problem) | {"PARTS": tile.parts, "ROWS": rows, "BLOCK": _SUM_BLOCK}


def _weight_strides(problem: ConvProblem) -> dict[str, int]:
    W_R, W_S = pair(problem.w.strides[2:], 0)
    return {"W_K": problem.w.strides[0], "W_C": problem.w.strides[1], "W_R": W_R, "W_S": W_S}
