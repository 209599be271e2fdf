"""Random convolutions at the edge of what is one: dimensions of 1, outputs that read only padding, filters larger than
the image, a group for each channel, empty batches, huge strides and dilations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Any

from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused

# What one problem may hold at most, so that thousands of candidates can be checked.
MOST_ELEMENTS, MOST_FLOPS = 60_000, 4e6
_DTYPES = ["fp32"] * 5 + ["bf16"] * 3 + ["fp16"] * 3 + ["fp64"] * 2 + ["int8", "fp8_e4m3", "fp8_e5m2"]
_SIZES = [1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 9, 17, 33]
_TAPS = [1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 11]
_STRIDES = [1, 1, 1, 1, 2, 2, 3, 5]
_DILATIONS = [1, 1, 1, 2, 2, 3, 5, 17]
# More than a C int holds, too: where there is one tap or one output, they change nothing.
_HUGE = [1000, 2**31 + 1]
_SELDOM, _SOMETIMES = 0.02, 0.15


def problems(seed: int) -> Iterator[ConvProblem]:
    """Without an end, and for equal seeds the same."""
    random = Random(seed)
    while True:
        try:
            problem = _transposed(random) if random.random() < _SOMETIMES else _direct(random)
        except (BadInput, Refused):
            continue  # a filter that does not fit, a dtype that this direction does not take
        if is_small(problem):
            yield problem


def is_small(problem: ConvProblem) -> bool:
    padded = problem.n * problem.c * prod(axis.size + sum(axis.pad) for axis in problem.axes)
    sizes = (padded, problem.w.numel, problem.y.numel)
    return max(sizes) <= MOST_ELEMENTS and problem.flops <= MOST_FLOPS


@dataclass(frozen=True, slots=True)
class _Window:
    """One spatial dimension as it is drawn."""

    size: int
    taps: int
    stride: int
    dilation: int
    pad: tuple[int, int]


def _window(random: Random) -> _Window:
    size, taps = random.choice(_SIZES), random.choice(_TAPS)
    stride = random.choice(_HUGE if random.random() < _SELDOM else _STRIDES)
    dilation = random.choice(_HUGE if taps == 1 and random.random() < 2 * _SELDOM else _DILATIONS)
    reach = (taps - 1) * dilation + 1
    least = max(0, -(-(reach - size) // 2))  # so much on both sides lets the filter fit
    before = random.choice([0, least, least, reach // 2, reach - 1, reach, reach + 2, 1])
    after = before if random.random() > _SOMETIMES else random.choice([0, least, reach - 1, reach + 1, 1])
    return _Window(size, taps, stride, dilation, (before, after))


def _channels(random: Random) -> tuple[int, int, int]:
    """Groups, and the channels of input and output."""
    c, k = (random.choice([1, 1, 2, 3, 4, 5, 8, 16, 17, 33]) for _ in range(2))
    groups = random.choice([1, 1, 1, 2, 3, 0])
    if groups == 0:  # one for each channel
        return c, c, c * random.choice([1, 1, 2])
    return groups, c * groups, k * groups


def _layout(random: Random) -> Any:
    return random.choice(
        ["nchw", "nchw", "nhwc", "nhwc", {name: random.choice(["nchw", "nhwc"]) for name in ("x", "w", "y")}]
    )


def _direct(random: Random) -> ConvProblem:
    windows = [_window(random) for _ in range(random.choice([1, 2, 2, 2, 3]))]
    groups, c, k = _channels(random)
    problem = ConvProblem.of(
        (random.choice([0, 1, 1, 1, 1, 2, 3]), c, *(each.size for each in windows)),
        (k, c // groups, *(each.taps for each in windows)),
        stride=[each.stride for each in windows],
        padding=[each.pad for each in windows],
        dilation=[each.dilation for each in windows],
        groups=groups,
        dtype=(dtype := DType.parse(random.choice(_DTYPES))),
        out_dtype=random.choice(dtype.outputs),
        layout=_layout(random),
        direction=Direction.FORWARD if dtype.narrow else random.choice([Direction.FORWARD, *Direction]),
        flip=random.random() < _SELDOM,
    )
    return replace(problem, epilogue=_epilogue(random, problem.direction))


def _epilogue(random: Random, direction: Direction) -> Epilogue:
    """On a gradient it is rare, and so are a scale and an output that is added to."""
    forward, rare = direction is Direction.FORWARD, random.random() < _SOMETIMES
    if not (forward or rare) or random.random() < 0.25:
        return Epilogue()
    return Epilogue(
        residual=forward and random.random() < 0.4,
        bias=direction is not Direction.BACKWARD_DATA and random.random() < 0.5,
        activation=random.choice([Activation.NONE, Activation.NONE, *Activation]),
        scale=rare and random.random() < 0.5,
        accumulate=rare and random.random() < 0.5,
    )


def _transposed(random: Random) -> ConvProblem:
    windows = [_window(random) for _ in range(random.choice([1, 2, 2, 3]))]
    groups, c, k = _channels(random)
    return ConvProblem.of_transposed(
        (random.choice([0, 1, 1, 2]), c, *(each.size for each in windows)),
        (c, k // groups, *(each.taps for each in windows)),
        stride=[each.stride for each in windows],
        padding=[each.pad[0] for each in windows],
        output_padding=[random.choice([0, 0, 1, 2]) for _ in windows],
        dilation=[each.dilation for each in windows],
        groups=groups,
        dtype=random.choice(["fp32", "fp32", "fp16", "bf16", "fp64"]),
        layout=_layout(random),
    )
