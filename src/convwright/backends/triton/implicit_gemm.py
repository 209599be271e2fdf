"""The implicit GEMM's algorithms: what they serve, and what their kernel is told about a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convwright.backends.triton.implicit_gemm_tiles import MOST_TILES, Tile, best_tiles
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

_OFFSETS_32_BITS = 2**31
_GROUP_M = 8


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One arithmetic of the kernel; ``packed`` means that ``prepare`` rounds or splits the weight, not the kernel."""

    name: str
    arithmetic: Arithmetic
    packed: bool = False
    tiles: int = MOST_TILES

    @property
    def id(self) -> str:
        return f"triton/{self.name}"

    @property
    def split(self) -> bool:
        """Whether the kernel loads two numbers for each weight."""
        return self.packed and self.arithmetic is Arithmetic.TF32X3


_OF_DTYPE = {
    DType.FP16: (Algorithm("implicit-gemm", Arithmetic.FP16_ACC32),),
    DType.BF16: (Algorithm("implicit-gemm", Arithmetic.BF16_ACC32),),
    DType.FP32: (
        Algorithm("implicit-gemm-3xtf32", Arithmetic.TF32X3, tiles=MOST_TILES // 2),
        Algorithm("implicit-gemm-3xtf32-packed", Arithmetic.TF32X3, packed=True, tiles=MOST_TILES // 2),
        Algorithm("implicit-gemm-tf32", Arithmetic.TF32, tiles=MOST_TILES // 2),
        Algorithm("implicit-gemm-tf32-packed", Arithmetic.TF32, packed=True, tiles=MOST_TILES // 2),
    ),
}


def algorithms(dtype: DType) -> tuple[Algorithm, ...]:
    """The algorithms for a storage type; for one that none serves, the first, to refuse by its name."""
    return _OF_DTYPE.get(dtype, (Algorithm("implicit-gemm", Arithmetic.FP16_ACC32),))


def algorithm_of(candidate: Candidate) -> Algorithm:
    named = {algorithm.name: algorithm for algorithm in algorithms(candidate.problem.dtype)}
    return named[candidate.algorithm]


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    for algorithm in algorithms(problem.dtype):
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        arithmetic, split = algorithm.arithmetic, algorithm.split
        for tile in best_tiles(problem, arithmetic, device, split=split, count=algorithm.tiles):
            # Where no cache has the kernel it takes 0.3 to 0.6 s to build (H200, Triton 3.6).
            yield Candidate(
                problem, "triton", algorithm.name, tile.config, arithmetic, 0, True, Source.RULE, compiles=True
            )


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    if problem.dtype not in _OF_DTYPE:
        return f"computes {', '.join(_OF_DTYPE)}, not {problem.dtype}"
    if problem.rank > 2:
        return f"serves 1 or 2 spatial dimensions, got {problem.rank}"
    if problem.groups != 1:
        return f"serves `groups` = 1, got {problem.groups}"
    if problem.epilogue.activation not in (Activation.NONE, Activation.RELU):
        return f"can fuse relu, not {problem.epilogue.activation}"
    return _layout_reason("input", problem.x) or _layout_reason("output", problem.y) or _size_reason(problem)


def _layout_reason(name: str, spec: TensorSpec) -> str | None:
    if spec.shape[1] > 1 and spec.strides[1] != 1:
        return f"needs a channels-last `{name}` (stride 1 along channels), got stride {spec.strides[1]}"
    return None


def _size_reason(problem: ConvProblem) -> str | None:
    pixels = problem.y.numel // problem.k
    if pixels == 0:
        return f"needs something to compute, got a batch of {problem.n}"
    if pixels >= _OFFSETS_32_BITS // 2:
        return f"serves at most 2^30 output pixels, got {pixels:,}"
    if problem.w.numel >= _OFFSETS_32_BITS // 2:
        return f"serves at most 2^30 weights, got {problem.w.numel:,}"
    for name, spec in (("input", problem.x), ("output", problem.y)):
        image = _span(spec.shape[1:], spec.strides[1:])
        if image >= _OFFSETS_32_BITS // 2:
            return f"serves images that span at most 2^30 elements, one of `{name}` spans {image:,}"
    return None


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """How many programs one launch needs."""
    return -(-problem.y.numel // problem.k // tile.bm) * -(-problem.k // tile.bn)


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """What the kernel is compiled for. One spatial dimension becomes the second of two."""
    (H, W), (R, S), (P, Q) = (_pair(spec.shape[2:], 1) for spec in (problem.x, problem.w, problem.y))
    (x_h, x_w), (y_p, y_q) = (_pair(spec.strides[2:], 0) for spec in (problem.x, problem.y))
    (stride_h, stride_w), (dilation_h, dilation_w) = _pair(problem.stride, 1), _pair(problem.dilation, 1)
    top, left = _pair(tuple(before for before, _ in problem.padding), 0)
    spans = (_span(spec.shape, spec.strides) for spec in (problem.x, problem.y))
    return {
        "N": problem.n, "C": problem.c, "H": H, "W": W, "K": problem.k, "R": R, "S": S, "P": P, "Q": Q,
        "X_N": problem.x.strides[0], "X_H": x_h, "X_W": x_w,
        "Y_N": problem.y.strides[0], "Y_P": y_p, "Y_Q": y_q,
        "STRIDE_H": stride_h, "STRIDE_W": stride_w, "TOP": top, "LEFT": left,
        "DILATION_H": dilation_h, "DILATION_W": dilation_w,
        "FLIP": problem.flip, "PADDED": any(side for pair in problem.padding for side in pair),
        "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "RELU": problem.epilogue.activation is Activation.RELU,
        "SPLIT": algorithm.arithmetic is Arithmetic.TF32X3, "PACKED": algorithm.packed,
        "FLAT": tile.runs_across_taps(problem.c, prod(problem.taps)),
        "WIDE": max(spans) >= _OFFSETS_32_BITS // 2,
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP_M": _GROUP_M,
    }  # fmt: skip


def _pair(values: tuple[int, ...], missing: int) -> tuple[int, int]:
    return (missing, values[0]) if len(values) == 1 else (values[0], values[1])
