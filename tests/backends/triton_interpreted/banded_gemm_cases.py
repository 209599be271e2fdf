"""Problems and candidates that the tests of products with band matrices share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace

from backends.triton_interpreted.cases import Case, listed
from convwright.backends.triton.banded_gemm.offers import ALGORITHM, best_tiles, candidate_of
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

_ALL = "residual+bias+relu"
SAME_7X7 = ((3, 3), (3, 3))
# Rows that lie where eight, four, two and one can be read at once; blocks that no rows, columns or images fill.
SERVED = {
    "7x7": Case((2, 3, 16, 16), (3, 1, 7, 7), padding=SAME_7X7, epilogue=_ALL, groups=3),
    "two outputs each": Case((3, 2, 9, 12), (4, 1, 6, 7), padding=((2, 3), (3, 2)), epilogue="bias+relu", groups=2),
    "9x5, flipped": Case((1, 2, 11, 18), (2, 1, 9, 5), padding=((4, 4), (2, 2)), flip=True, groups=2),
    "7x6, strided and dilated": Case(
        (2, 3, 23, 21), (3, 1, 7, 6), (2, 3), ((5, 4), (3, 6)), (2, 1), "residual+bias", groups=3
    ),
    "6x6, dilated in a row": Case((1, 2, 8, 33), (2, 1, 6, 6), (3, 1), ((0, 5), (9, 1)), (1, 4), "bias", groups=2),
    "one channel": Case((1, 1, 40, 45), (1, 1, 13, 13), padding=((6, 6), (6, 6)), epilogue="relu"),
    "slice of a wider buffer": Case((2, 4, 10, 8), (4, 1, 7, 7), padding=SAME_7X7, epilogue=_ALL, slack=3, groups=4),
    "31x31": Case((1, 2, 20, 20), (2, 1, 31, 31), padding=((15, 15), (15, 15)), groups=2),
    "a long row": Case((2, 3, 150), (3, 1, 41), (1,), ((40, 0),), (1,), "bias+silu", groups=3),
    "a long column": Case((2, 2, 60, 5), (2, 1, 37, 1), padding=((18, 18), (0, 0)), groups=2),
}

# Whose gradients of inputs are convolutions of dy.
TURNED = {
    "7x7": Case((2, 3, 16, 16), (3, 1, 7, 7), padding=SAME_7X7, groups=3),
    "9x5, flipped": SERVED["9x5, flipped"],
    "7x9, dilated": Case((2, 3, 15, 21), (3, 1, 7, 9), (1, 1), ((5, 2), (4, 11)), (1, 2), groups=3, slack=1),
    "31x31": SERVED["31x31"],
    "a long row": Case((2, 3, 150), (3, 1, 41), (1,), ((40, 0),), (1,), groups=3),
}


def convolving_only(name: str, *, padded: bool) -> Case:
    """One of those that are served, without an epilogue, and without what surrounds the image unless ``padded``."""
    case = replace(SERVED[name], epilogue="none")
    return case if padded else replace(case, padding=tuple((0, 0) for _ in case.padding))


def offered(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    return [each for each in listed(ALGORITHM, problem, device) if isinstance(each, Candidate)]


def every_tile(problem: ConvProblem) -> list[Candidate]:
    """Not only those that an estimate would keep for the problem."""
    return [candidate_of(problem, tile) for tile in best_tiles(problem, profile("h200"), count=1000)]
