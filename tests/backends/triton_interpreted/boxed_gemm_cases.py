"""Problems that the tests of products of boxes share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace

from backends.triton_interpreted.cases import Case
from convwright.backends.triton.boxed_gemm.offers import TILES, candidate_of, tiles_of
from convwright.backends.triton.boxes.window import Window
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem

ALGORITHM = "boxed-gemm"
SAME = ((1, 1), (1, 1))
_ALL = "residual+bias+relu"
# Images whose sides are no multiples of a box's, so that boxes lie beside each of them.
SERVED = {
    "pointwise": Case((2, 32, 5, 7), (24, 32, 1, 1), epilogue="bias"),
    "pointwise, padded": Case((2, 16, 5, 7), (8, 16, 1, 1), padding=((1, 0), (0, 2)), epilogue="bias"),
    "3x3": Case((2, 64, 6, 7), (40, 64, 3, 3), padding=SAME, epilogue="bias+relu"),
    "3x3 without padding": Case((3, 48, 7, 6), (40, 48, 3, 3), epilogue=_ALL),
    "dilated": Case((1, 16, 13, 12), (16, 16, 3, 3), padding=((4, 4), (3, 3)), dilation=(4, 3), epilogue="relu"),
    "asymmetric padding": Case((2, 16, 6, 5), (8, 16, 3, 4), padding=((0, 2), (3, 1)), epilogue="residual"),
    "flipped": Case((1, 32, 6, 6), (8, 32, 3, 2), padding=SAME, flip=True),
    "strided": Case((2, 32, 9, 8), (24, 32, 3, 3), (2, 2), SAME, epilogue="bias+relu"),
    "strided pointwise": Case((3, 16, 9, 8), (24, 16, 1, 1), (2, 2), epilogue=_ALL),
    "strided and dilated": Case((1, 16, 17, 13), (8, 16, 2, 3), (3, 8), ((4, 1), (0, 5)), (2, 3), epilogue="bias"),
    "1-D, strided": Case((2, 16, 40), (16, 16, 4), (4,), ((2, 1),), (1,), "bias"),
    "1-D": Case((2, 32, 30), (16, 32, 5), (1,), ((1, 3),), (2,), "bias"),
    "1-D, pointwise": Case((3, 16, 11), (16, 16, 1), (1,), ((0, 0),), (1,), _ALL),
    "many output channels": Case((1, 32, 3, 3), (152, 32, 3, 3), padding=SAME, epilogue="residual+relu"),
    "one column": Case((2, 16, 9, 1), (8, 16, 3, 1), padding=((1, 1), (0, 0)), epilogue="bias+silu"),
    "one pixel": Case((5, 96, 1, 1), (72, 96, 1, 1), epilogue=_ALL),
    "many images": Case((70, 16, 3, 2), (8, 16, 2, 2), padding=SAME, epilogue="bias+gelu"),
    "channels that fill no step": Case((2, 40, 6, 5), (24, 40, 3, 2), padding=SAME, epilogue="bias"),
    "few channels": Case((2, 8, 6, 5), (16, 8, 3, 3), padding=SAME, epilogue=_ALL),
    "volume": Case((2, 24, 4, 5, 6), (16, 24, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1), _ALL),
    "volume, strided": Case(
        (1, 16, 9, 6, 7), (8, 16, 2, 3, 1), (3, 1, 2), ((2, 0), (1, 3), (0, 1)), (2, 1, 3), "bias", flip=True
    ),
    "volume, pointwise": Case((2, 16, 3, 4, 5), (16, 16, 1, 1, 1), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1), "bias+relu"),
    "one plane of a volume": Case((2, 16, 1, 5, 6), (16, 16, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1)),
    "output channels that fill no 16 bytes": Case(
        (3, 16, 7, 6), (21, 16, 3, 3), padding=SAME, epilogue="residual+bias+relu"
    ),
    "one channel of a volume": Case((2, 16, 3, 4, 5), (1, 16, 2, 3, 3), (2, 1, 1), (SAME[0],) * 3, (1, 1, 1), "bias"),
    "pointwise to few channels": Case((2, 32, 5, 7), (19, 32, 1, 1), epilogue="residual+relu"),
    "window larger than the image": Case((1, 16, 2, 3), (8, 16, 5, 5), padding=((2, 3), (2, 2)), epilogue="bias"),
}  # fmt: skip


def in_whole_numbers(case: Case) -> Case:
    """The same without an activation that makes fractions of whole numbers."""
    exact = case.epilogue.split("+")[-1] in ("none", "bias", "residual", "relu")
    return case if exact else replace(case, epilogue="bias+relu")


def sliced(problem: ConvProblem) -> ConvProblem:
    """Slices whose addresses suit the copy engine, where their strides do."""
    return replace(problem, x=replace(problem.x, alignment=16), y=replace(problem.y, alignment=16))


def every_tile(problem: ConvProblem, programs: int) -> list[Candidate]:
    """So few programs that each computes several."""
    placed = [replace(tile, programs=min(tiles_of(tile, Window.of(problem)), programs)) for tile in TILES]
    return [candidate_of(problem, tile) for tile in placed]
