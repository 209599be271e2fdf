"""Problems and configurations that tests of products on folded rows of taps share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from backends.triton_interpreted.cases import CASES, Case
from convwright.backends.triton.folded_gemm.offers import KERNEL, FoldedTile, algorithms_of, candidate_of, steps, tiles
from convwright.backends.triton.implicit_gemm.offers import tiles_of
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

ALGORITHM = KERNEL
# Of so few multiprocessors that programs which keep the weight have several tiles each.
SMALL = replace(profile("h200"), sm_count=1)
SAME = ((1, 1), (1, 1))
_ALL = "residual+bias+relu"
SERVED = {
    "stem": CASES["stem"],
    "3x3": Case((2, 3, 5, 6), (9, 3, 3, 3), padding=SAME, epilogue=_ALL),
    "one channel": Case((1, 1, 6, 9), (8, 1, 3, 3), padding=SAME, epilogue="bias"),
    "two channels of a row": Case((2, 2, 4, 7), (11, 2, 1, 2), epilogue="residual"),
    "eight channels": Case((1, 8, 5, 7), (10, 8, 2, 3), padding=((1, 0), (2, 1)), epilogue="bias+relu"),
    "a step filled by taps": Case((1, 4, 3, 20), (17, 4, 2, 16), padding=((0, 1), (3, 2)), epilogue="relu"),
    "five channels, strided": Case((2, 5, 9, 8), (12, 5, 3, 3), (2, 3), ((0, 1), (1, 0)), epilogue=_ALL),
    "rows apart": Case((1, 3, 12, 6), (9, 3, 3, 3), padding=((4, 3), (1, 1)), dilation=(4, 1), epilogue="bias"),
    "padding beyond the filter": Case((1, 3, 3, 2), (8, 3, 3, 3), padding=((4, 3), (3, 5)), epilogue="bias"),
    "flipped": Case((1, 6, 5, 6), (11, 6, 3, 2), padding=SAME, epilogue=_ALL, flip=True),
    "slice of a wider buffer": Case((2, 3, 5, 6), (11, 3, 3, 3), padding=SAME, epilogue=_ALL, slack=5),
    "1-D": Case((2, 4, 30), (9, 4, 5), (2,), ((1, 3),), (1,), "bias"),
    "many output channels": Case((1, 3, 3, 4), (150, 3, 2, 2), epilogue="residual+relu"),
    "any window of a volume": Case(
        (2, 3, 5, 4, 6), (9, 3, 2, 3, 2), (2, 1, 3), ((1, 2), (0, 1), (3, 0)), (3, 2, 1), "residual", flip=True
    ),
    "slice of a volume": Case(
        (1, 7, 3, 4, 5), (16, 7, 2, 2, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 1), _ALL, slack=2
    ),
}  # fmt: skip


def every_tile(problem: ConvProblem) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [
        candidate_of(problem, algorithm, tile)
        for algorithm in algorithms_of(problem.dtype)
        for tile in tiles(problem, algorithm, SMALL)
    ]


def least(problem: ConvProblem) -> list[Candidate]:
    """Of each algorithm what the interpreter has least to do for, with a program for each tile; and then of each with
    programs that keep the weight."""

    def work(candidate: Candidate) -> int:
        """Products, and what takes as long in each program."""
        tile = FoldedTile.of(candidate)
        return tiles_of(tile, problem) * (tile.products(steps(problem)) + 2**17)

    ranked = sorted(every_tile(problem), key=work, reverse=True)
    by_kind = {(FoldedTile.of(each).programs is not None, each.algorithm): each for each in ranked}
    names = [algorithm.name for algorithm in algorithms_of(problem.dtype)]
    return [by_kind[kind] for kind in product((False, True), names)]
