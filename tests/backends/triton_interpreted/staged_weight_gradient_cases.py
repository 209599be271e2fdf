"""Problems and configurations that tests of the staged weight's gradient share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace

from backends.triton_interpreted.cases import CASES, Case
from convwright.backends.triton.staged_weight_gradient.offers import ALGORITHMS, KERNEL, StagedTile, candidate_of, tiles
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem

ALGORITHM = KERNEL
NAMES = tuple(algorithm.name for algorithm in ALGORITHMS)
SAME = ((1, 1), (1, 1))
SERVED = {
    "pointwise": CASES["pointwise"],
    "pointwise, strided": CASES["pointwise, strided"],
    "pointwise of two blocks": Case((2, 70, 3, 5), (66, 70, 1, 1)),
    "3x3": Case((2, 20, 4, 3), (17, 20, 3, 3), padding=SAME),
    "odd channels, dilated": Case((1, 19, 9, 10), (21, 19, 3, 2), padding=((4, 4), (3, 3)), dilation=(4, 3)),
    "asymmetric padding": Case((2, 16, 6, 5), (16, 16, 3, 2), padding=((0, 2), (3, 1)), stride=(2, 1)),
    "padding beyond the filter": Case((1, 16, 3, 2), (16, 16, 2, 3), padding=((4, 3), (3, 5))),
    "flipped": Case((1, 18, 5, 6), (16, 18, 3, 2), padding=SAME, flip=True),
    "slice of a wider buffer": Case((2, 20, 5, 6), (17, 20, 2, 2), padding=SAME, slack=5),
    "1-D": Case((2, 20, 30), (16, 20, 5), (2,), ((1, 3),), (2,)),
    "groups that fill no tile": Case((1, 60, 6, 5), (51, 20, 2, 1), (2, 1), ((0, 2), (1, 0)), slack=4, groups=3),
    "groups of two blocks": Case((1, 140, 2, 3), (34, 70, 1, 1), groups=2),
    "groups in 1-D, flipped": Case((2, 54, 19), (48, 18, 3), (2,), ((2, 1),), (2,), flip=True, groups=3),
    "any window of a volume": Case(
        (2, 17, 5, 4, 6), (16, 17, 2, 1, 3), (2, 1, 3), ((1, 2), (0, 1), (3, 0)), (3, 1, 2), flip=True
    ),
    "groups of a volume": Case(
        (1, 36, 3, 4, 5), (32, 18, 2, 1, 2), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 1), slack=2, groups=2
    ),
}


def all_tiles(problem: ConvProblem, parts: int) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [
        candidate_of(problem, algorithm, replace(tile, parts=parts))
        for algorithm in ALGORITHMS
        for tile in tiles(algorithm)
    ]


def least(problem: ConvProblem, parts: int = 1) -> list[Candidate]:
    """Of each algorithm what the interpreter has least to do for."""

    def work(candidate: Candidate) -> int:
        """Products, and what takes as long in each program."""
        tile = StagedTile.of(candidate)
        return tile.products(problem) + (tile.tiles(problem) * parts << 17)

    by_name = {each.algorithm: each for each in sorted(all_tiles(problem, parts), key=work, reverse=True)}
    return [by_name[name] for name in NAMES]
