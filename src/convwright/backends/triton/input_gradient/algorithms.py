"""The name that those of an input gradient's algorithms begin with, and how they read the weight."""

from __future__ import annotations

from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.operands import group_sizes
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem

KERNEL = "input-gradient"


def is_turned(problem: ConvProblem, tile: Tile) -> bool:
    """Whether the weight is laid as C T R S K, along the sum, and not as K T R S C, as it lies with channels last.

    Of fp32 tensor cores take nothing else; of the others only where whole tiles can be read along the channels.
    """
    return problem.dtype is DType.FP32 or group_sizes(problem)[0] % tile.bn > 0
