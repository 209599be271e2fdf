"""The kernels that pack weights, and their constants."""

from __future__ import annotations

from math import prod

from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.operands import group_sizes, moves, power_of_two, weight_depth, weight_strides
from convwright.core.problem import ConvProblem

# Elements of a program.
_LEAST, _MOST, _POINTS = 128, 1024, 128
_WARPS = 4


def rows_call(problem: ConvProblem, *, split: bool) -> KernelCall:
    """The kernel that packs a weight as K T R S C."""
    w_k, w_c, *_ = moves(problem.w)
    inner = problem.w.shape[1]
    return _rows_call(problem, problem.k, 1, (w_k, 0), inner, w_c, split=split)


def turned_rows_call(problem: ConvProblem, *, split: bool) -> KernelCall:
    """The kernel that packs each group of a weight as C T R S K."""
    (w_k, w_c, *_), (inputs, outputs) = moves(problem.w), group_sizes(problem)
    strides = outputs * w_k, w_c
    return _rows_call(problem, problem.groups * inputs, inputs, strides, outputs, w_k, split=split)


def transformed_call(problem: ConvProblem, *, pitch: int, packed: bool) -> KernelCall:
    """The kernel that transforms a weight for Winograd's products, with ``pitch`` input channels per point."""
    from convwright.backends.triton.packing.kernel import transformed_weight

    values = weight_strides(problem) | {
        "C": problem.c, "K": problem.k, "FLIP": problem.flip, "PITCH": pitch, "PACKED": packed,
        "BLOCK": _POINTS,
    }  # fmt: skip
    blocks = -(-problem.k * pitch // _POINTS)
    return KernelCall(transformed_weight, _pointers(problem), values, blocks, _WARPS, 1)


def _rows_call(
    problem: ConvProblem, rows: int, group: int, strides: tuple[int, int], inner: int, w_inner: int, *, split: bool
) -> KernelCall:
    from convwright.backends.triton.packing.kernel import packed_rows

    window = weight_depth(problem) | weight_strides(problem)
    r, s = (1, problem.taps[0]) if problem.rank == 1 else problem.taps[-2:]
    length = prod(problem.taps) * inner
    block = min(max(power_of_two(length), _LEAST), _MOST)
    values = {name: window[name] for name in ("T", "W_T", "W_R", "W_S")} | {
        "ROWS": rows, "GROUP": group, "W_GROUP": strides[0], "W_ROW": strides[1], "R": r, "S": s,
        "INNER": inner, "W_INNER": w_inner, "SPLIT": split, "BLOCK": block,
    }  # fmt: skip
    return KernelCall(packed_rows, _pointers(problem), values, rows * -(-length // block), _WARPS, 1)


def _pointers(problem: ConvProblem) -> dict[str, tuple[str, int]]:
    # The weight may have any address.
    return {"w": (problem.dtype.value, problem.dtype.nbytes), "packed": WORKSPACE}
