"""Configurations in parts that the tests of the implicit GEMM share, without a GPU and on one."""

from __future__ import annotations

from dataclasses import replace

from convwright.backends.triton.gemm.algorithms import algorithms_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import KERNEL, candidate_of
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem

# With few channels the first runs across taps; the second leaves tails in pixels and channels of all small problems.
TILES = (Tile(16, 32, 32, 4, 2), Tile(64, 64, 16, 4, 3))


def of_parts(problem: ConvProblem, parts: int, tiles: tuple[Tile, ...] = TILES) -> list[Candidate]:
    """``tiles`` in so many parts, for each algorithm."""
    return [
        candidate_of(problem, algorithm, replace(tile, parts=parts))
        for algorithm in algorithms_of(KERNEL, problem.dtype)
        for tile in tiles
    ]
