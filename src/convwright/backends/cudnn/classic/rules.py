"""Predicted answers of cuDNN's classic API for a GPU that is not in this machine: supported problems and their
workspace.

The rules hold for the architectures of `VERIFIED_ON` and for cuDNN 9.19. They were derived from what cuDNN answered on
a live GPU for the problems of `benchmarks/classic_answers.py`. Tests check them against these answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from convwright.backends.cudnn.classic.classic_problem import ClassicProblem
from convwright.backends.cudnn.classic.conditions import (
    Condition,
    channels_first,
    channels_first_in_3d,
    channels_first_in_3d_fp64,
    channels_first_in_fp64,
    dense_x,
    dense_y,
    dilation_1,
    in_2d,
    in_3d,
    in_nchw,
    never,
    only,
    padding_below_taps,
    padding_below_y,
    stride_1,
    taps_side_by_side,
    up_to_2d,
)
from convwright.backends.cudnn.classic.fourier import (
    a_line,
    fft_bytes,
    fits_a_tile,
    fits_a_transform,
    line_in_fp64,
    spectra_fit,
    tile_strides,
    tiled_fft_bytes,
)
from convwright.backends.cudnn.classic.gemm import (
    atomic_backward_weight_bytes,
    backward_data_bytes,
    backward_weight_bytes,
    no_bytes,
    precomputed_bytes,
    unrolled_bytes,
)
from convwright.backends.cudnn.classic.operands import objection
from convwright.backends.cudnn.classic.winograd import winograd_bytes, winograd_fits, winograd_taps
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

VERIFIED_ON = ("sm_90",)
_MOST_ELEMENTS = 2**31


@dataclass(frozen=True, slots=True)
class Rule:
    """An algorithm supports problems that meet all conditions, and needs ``workspace_bytes`` (None if unknown).

    The workspace is exact for every recorded problem unless ``at_most`` gives an upper bound.
    """

    conditions: tuple[Condition, ...]
    workspace_bytes: Callable[[ClassicProblem], int | None] = no_bytes
    at_most: bool = False


_UNSERVED = Rule((never,))
_PLAIN = (channels_first, only(DType.FP32, DType.FP16), up_to_2d, dense_x, dense_y, stride_1)
_FFT = (padding_below_taps, fits_a_transform, spectra_fit)
_TILES = (
    channels_first,
    only(DType.FP32, DType.FP16, DType.FP64),
    dense_x,
    dense_y,
    dilation_1,
    padding_below_taps,
)
_WINOGRAD = (
    channels_first,
    only(DType.FP32, DType.FP16, DType.BF16),
    up_to_2d,
    winograd_taps,
    stride_1,
    dilation_1,
    winograd_fits,
)
RULES = {
    Direction.FORWARD: {
        "implicit-gemm": Rule((channels_first_in_3d,)),
        "implicit-precomp-gemm": Rule((channels_first_in_3d_fp64,), precomputed_bytes, at_most=True),
        "gemm": Rule((channels_first, up_to_2d), unrolled_bytes, at_most=True),
        "direct": _UNSERVED,
        "fft": Rule((*_PLAIN, dilation_1, *_FFT), fft_bytes),
        "fft-tiling": Rule((*_TILES, line_in_fp64, fits_a_tile, tile_strides), tiled_fft_bytes, at_most=True),
        "winograd": _UNSERVED,
        "winograd-nonfused": Rule(_WINOGRAD, winograd_bytes),
    },
    Direction.BACKWARD_DATA: {
        "algo-0": Rule((channels_first_in_fp64, channels_first_in_3d, in_nchw(dense_y))),
        "algo-1": Rule(
            (channels_first_in_fp64, in_nchw(dense_y), in_nchw(in_3d(dense_x))), backward_data_bytes, at_most=True
        ),
        "fft": Rule((*_PLAIN, taps_side_by_side, *_FFT), fft_bytes),
        "fft-tiling": Rule((*_TILES, line_in_fp64, fits_a_tile, tile_strides), tiled_fft_bytes, at_most=True),
        "winograd": _UNSERVED,
        "winograd-nonfused": Rule((dense_y, *_WINOGRAD), winograd_bytes),
    },
    Direction.BACKWARD_WEIGHT: {
        "algo-0": Rule((channels_first_in_fp64, channels_first_in_3d, in_nchw(in_2d(dense_x)))),
        "algo-1": Rule((channels_first_in_fp64, in_nchw(in_2d(dense_x))), backward_weight_bytes, at_most=True),
        "fft": Rule((*_PLAIN, dilation_1, padding_below_y, *_FFT), fft_bytes),
        "algo-3": Rule(
            (channels_first, dense_x, in_2d(dilation_1), in_3d(dense_y)), atomic_backward_weight_bytes, at_most=True
        ),
        "winograd": _UNSERVED,
        "winograd-nonfused": Rule((dense_x, *_WINOGRAD), winograd_bytes),
        "fft-tiling": Rule(
            (*_TILES, up_to_2d, stride_1, a_line, padding_below_y, fits_a_tile), tiled_fft_bytes, at_most=True
        ),
    },
}  # fmt: skip


def answer(problem: ConvProblem, algorithm: str, arithmetic: Arithmetic) -> int | str | None:
    """The largest workspace in bytes that ``algorithm`` needs, or the reason why it does not support ``problem``.

    None: it is supported, and no rule predicts its workspace (`planned` may). A reason that begins with "unknown" means
    that the rules do not cover the problem.

    >>> problem = ConvProblem.of((32, 256, 14, 14), (256, 256, 3, 3), padding=1, stride=2)
    >>> answer(problem, "fft", Arithmetic.FP32)
    'takes strides of 1, got (2, 2)'
    >>> answer(problem, "implicit-precomp-gemm", Arithmetic.FP32)
    1024
    """
    rule = RULES[problem.direction][algorithm]
    if reason := objection(problem) or (None if rule is _UNSERVED else _unknown(problem)):
        return reason
    given = ClassicProblem.of(problem, arithmetic)
    failed = next((reason for condition in rule.conditions if (reason := condition(given))), None)
    return failed or rule.workspace_bytes(given)


def is_bound(problem: ConvProblem, algorithm: str, workspace_bytes: int) -> bool:
    """True if ``workspace_bytes`` is only an upper bound."""
    return RULES[problem.direction][algorithm].at_most and workspace_bytes > 0


def _unknown(problem: ConvProblem) -> str | None:
    """Why the rules do not cover ``problem``; None if they do."""
    named = {"x": problem.x, "w": problem.w, "y": problem.y}
    for name, spec in named.items():
        if spec.layout is Layout.STRIDED:
            return f"unknown: the rules cover dense operands only, got {name} with strides {spec.strides}"
        if prod(spec.shape) >= _MOST_ELEMENTS:
            return f"unknown: the rules cover operands below 2^31 elements, got {prod(spec.shape):,} in {name}"
    return None
