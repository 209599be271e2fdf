"""What kernels that sweep over images are told of how operands lie."""

from __future__ import annotations

from math import prod

from convwright.backends.triton.operands import moves, pair, weight_depth, weight_strides
from convwright.backends.triton.sweep import Sweep
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem


def lying_constants(sweep: Sweep) -> dict[str, int]:
    """Strides of what is read and written."""
    ahead = (0,) * (5 - len(sweep.read.shape))
    told: dict[str, int] = {}
    for spec, names in (sweep.read, "X_N X_C X_D X_H X_W"), (sweep.written, "Y_N Y_K Y_Z Y_P Y_Q"):
        images, channels, *pixels = moves(spec)
        told |= dict(zip(names.split(), (images, channels, *ahead, *pixels), strict=True))
    return told


def weight_lying(problem: ConvProblem, *, packed: bool) -> dict[str, int]:
    """Strides of the weight: as it lies, or packed with its groups last."""
    outputs = problem.k // problem.groups
    if not packed:
        told = weight_strides(problem) | {"W_T": weight_depth(problem)["W_T"]}
        return told | {"W_G": outputs * told["W_K"]}
    _, channels, *taps = problem.w.shape
    R, S = pair(tuple(taps), 1)
    tap = problem.groups
    told = {"W_G": 1, "W_S": tap, "W_R": S * tap, "W_T": R * S * tap, "W_C": prod(taps) * tap}
    return told | {"W_K": channels * told["W_C"]}


def weight_constants(problem: ConvProblem, lying: dict[str, int]) -> dict[str, int]:
    """Strides along the groups and along the channels that are outputs and inputs here."""
    K, C = ("W_C", "W_K") if problem.direction is Direction.BACKWARD_DATA else ("W_K", "W_C")
    return {"W_G": lying["W_G"], "W_K": lying[K], "W_C": lying[C]}
