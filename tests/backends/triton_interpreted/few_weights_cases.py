"""Problems and candidates that the tests of the kernel for few weights share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace

from backends.triton_interpreted.cases import CASES, GROUPED, VOLUMES, Case, listed
from backends.triton_interpreted.weight_gradient_cases import gradient
from convwright.backends.triton.few_weights.offers import ALGORITHM, PATCHES, candidate_of, filled_patch, tap_block
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

LAYOUTS = [(Layout.NCHW, Layout.NCHW), (Layout.NHWC, Layout.NHWC)]
MIXED = [(Layout.NCHW, Layout.NHWC), (Layout.NHWC, Layout.NCHW)]


def _few(case: Case) -> Case:
    channels = min(case.x[1], 5)
    return replace(case, x=(case.x[0], channels, *case.x[2:]), w=(min(case.w[0], 4), channels, *case.w[2:]))


FEW = {name: _few(case) for name, case in CASES.items() if name != "3x3 without padding"}
FEW |= {name: _few(case) for name, case in VOLUMES.items()} | GROUPED
# Of a large filter each block of taps has programs of its own.
FEW |= {
    "17x9": Case((2, 2, 19, 12), (2, 1, 17, 9), padding=((8, 7), (4, 4)), groups=2),
    "15x15, strided and dilated": Case(
        (1, 3, 33, 35), (3, 1, 15, 15), (2, 1), ((7, 7), (8, 6)), (2, 2), groups=3, slack=1, flip=True
    ),
    "a long row": Case((2, 2, 300), (3, 2, 150), (2,), ((20, 3),), (1,)),
    "13x13 in planes": Case(
        (1, 2, 2, 14, 13), (2, 1, 2, 13, 13), (1, 1, 1), ((1, 0), (6, 6), (6, 5)), (1, 1, 1), groups=2
    ),
}
# Rows, columns, patches and channels that no configuration fills, padding on all sides, gaps between channels.
RAGGED = Case((1, 4, 13, 17), (4, 2, 3, 2), padding=((2, 1), (1, 3)), slack=1, groups=2)
WINDOWS = [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((1, 1), (3, 2)), ((2, 2), (4, 1)), ((3, 5), (1, 1))]


def ragged(number: int, dtype: DType, layout: Layout) -> ConvProblem:
    stride, dilation = WINDOWS[number % len(WINDOWS)]
    return gradient(replace(RAGGED, stride=stride, dilation=dilation), dtype, Layout.NCHW, layout, layout)


def offered(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    return [each for each in listed(ALGORITHM, problem, device) if isinstance(each, Candidate)]


def all_patches(problem: ConvProblem, parts: int) -> list[Candidate]:
    """Every patch that a thread's registers hold, not only those that an estimate would keep for the problem, and of
    every third also one that keeps fewer taps."""
    rows, columns = tap_block(problem)
    halves = {"taps_h": rows, "taps_w": -(-columns // 2)}, {"taps_h": -(-rows // 2), "taps_w": columns}
    divided = [replace(patch, **halves[number % 2]) for number, patch in enumerate(PATCHES[::3])]
    filled = (filled_patch(patch, problem) for patch in (*PATCHES, *divided))
    return [candidate_of(problem, replace(patch, parts=parts)) for patch in filled if patch is not None]
