"""Problems that the tests of a weight's gradient in boxes share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace

from backends.triton_interpreted.boxed_gemm_cases import SAME, sliced
from backends.triton_interpreted.cases import Case
from backends.triton_interpreted.weight_gradient_cases import gradient
from convwright.backends.triton.boxed_weight_gradient.offers import TILES, candidate_of
from convwright.core.candidate import Candidate
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

ALGORITHM = "boxed-weight-gradient"
# Images whose sides are multiples of a box's, and others, of which boxes lie beside the output.
SERVED = {
    "pointwise": Case((2, 32, 5, 7), (24, 32, 1, 1)),
    "pointwise, padded": Case((2, 16, 5, 7), (16, 16, 1, 1), padding=((1, 0), (0, 2))),
    "3x3": Case((2, 64, 6, 7), (40, 64, 3, 3), padding=SAME),
    "3x3 in whole boxes": Case((2, 16, 4, 8), (24, 16, 3, 3), padding=SAME),
    "3x3 without padding": Case((3, 48, 7, 6), (40, 48, 3, 3)),
    "dilated": Case((1, 16, 13, 12), (16, 16, 3, 3), padding=((4, 4), (3, 3)), dilation=(4, 3)),
    "asymmetric padding": Case((2, 16, 6, 5), (16, 16, 3, 4), padding=((0, 2), (3, 1))),
    "flipped": Case((1, 32, 6, 6), (16, 32, 3, 2), padding=SAME, flip=True),
    "strided": Case((2, 32, 9, 8), (24, 32, 3, 3), (2, 2), SAME),
    "strided and dilated": Case((1, 16, 17, 13), (16, 16, 2, 3), (3, 8), ((4, 1), (0, 5)), (2, 3)),
    "1-D": Case((2, 32, 30), (16, 32, 5), (1,), ((1, 3),), (2,)),
    "many output channels": Case((1, 32, 3, 3), (152, 32, 3, 3), padding=SAME),
    "channels that fill no tile": Case((2, 40, 6, 5), (136, 40, 3, 2), padding=SAME),
    "one pixel": Case((5, 96, 1, 1), (72, 96, 1, 1)),
    "many images": Case((70, 16, 3, 2), (16, 16, 2, 2), padding=SAME),
    "volume": Case((2, 24, 4, 5, 6), (16, 24, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1)),
    "volume, strided": Case(
        (1, 16, 9, 6, 7), (16, 16, 2, 3, 1), (3, 1, 2), ((2, 0), (1, 3), (0, 1)), (2, 1, 3), flip=True
    ),
}  # fmt: skip


def posed(case: Case, dtype: DType, weight_layout: Layout = Layout.NHWC, *, slack: int = 0) -> ConvProblem:
    """With ``slack``, input and gradient are slices of buffers that are so much wider."""
    return sliced(gradient(replace(case, slack=slack), dtype, weight_layout))


def every_tile(problem: ConvProblem, parts: int) -> list[Candidate]:
    """Not only those that an estimate would keep for the problem."""
    return [candidate_of(problem, replace(tile, parts=parts)) for tile in TILES]
