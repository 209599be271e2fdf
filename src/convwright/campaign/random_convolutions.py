"""Draw random convolutions: sizes log-uniformly, options by their shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from random import Random
from typing import TypeVar

from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

_Word = TypeVar("_Word")

_RANKS = {1: 0.15, 2: 0.7, 3: 0.15}
_DTYPES = {
    "cuda": {DType.FP16: 0.4, DType.FP32: 0.4, DType.BF16: 0.2},
    "cpu": {DType.FP32: 0.7, DType.BF16: 0.15, DType.FP16: 0.15},
}
_DIRECTIONS = {Direction.FORWARD: 0.5, Direction.BACKWARD_DATA: 0.25, Direction.BACKWARD_WEIGHT: 0.25}
_LAYOUTS = {Layout.NCHW: 0.5, Layout.NHWC: 0.5}
_SIZES: Mapping[int, tuple[int, int]] = {1: (8, 65_536), 2: (1, 1024), 3: (4, 128)}
_TAPS = {1: 0.25, 2: 0.05, 3: 0.4, 4: 0.05, 5: 0.1, 7: 0.1, 9: 0.03, 11: 0.02}
_STRIDES = {1: 0.65, 2: 0.25, 3: 0.05, 4: 0.05}
_DILATIONS = {1: 0.8, 2: 0.1, 3: 0.05, 8: 0.05}
_ACTIVATIONS = [each for each in Activation if each is not Activation.NONE]
# How often both sides of an image are equal, and all taps.
_SQUARE = 0.75


def log_uniform(random: Random, least: int, most: int) -> int:
    """A whole number with log-uniform distribution."""
    return round(exp(random.uniform(log(least), log(most))))


def one_by_share(random: Random, shares: Mapping[_Word, float]) -> _Word:
    """One of the words, each as often as its share says."""
    return random.choices(list(shares), list(shares.values()))[0]


def channels(random: Random, most: int = 2048) -> int:
    """A number of channels; in half of the cases a multiple of 8, as in most networks."""
    count = log_uniform(random, 1, most)
    return count if random.random() < 0.5 else max(count // 8, 1) * 8


def dtype_for(random: Random, device: DeviceFacts) -> DType:
    """A dtype, by how often each is used on such devices."""
    return one_by_share(random, _DTYPES[device.kind])


def random_convolution(random: Random, device: DeviceFacts) -> ConvProblem:
    """A convolution of one to three dimensions in any direction. Raises ``BadInput`` if the draw is invalid."""
    rank = one_by_share(random, _RANKS)
    sizes = _along(random, rank, [log_uniform(random, *_SIZES[rank]) for _ in range(rank)])
    taps = _along(random, rank, [one_by_share(random, _TAPS) for _ in range(rank)])
    stride, dilation = one_by_share(random, _STRIDES), one_by_share(random, _DILATIONS)
    groups, c, k = _channels(random)
    direction = one_by_share(random, _DIRECTIONS)
    return ConvProblem.of(
        (log_uniform(random, 1, 256), c, *sizes),
        (k, c // groups, *taps),
        stride=stride,
        padding=_padding(random, taps, dilation),
        dilation=dilation,
        groups=groups,
        dtype=dtype_for(random, device),
        layout=one_by_share(random, _LAYOUTS),
        direction=direction,
        epilogue=random_epilogue(random, direction),
    )


def random_epilogue(random: Random, direction: Direction) -> Epilogue:
    """An epilogue: for half of the forward convolutions, none for gradients."""
    if direction is not Direction.FORWARD or random.random() < 0.5:
        return Epilogue()
    activation = random.choice([Activation.NONE, Activation.RELU, Activation.RELU, *_ACTIVATIONS])
    residual = activation is not Activation.NONE and random.random() < 0.3
    return Epilogue(residual=residual, bias=True, activation=activation)


def _along(random: Random, rank: int, numbers: Sequence[int]) -> tuple[int, ...]:
    """One number for each axis, often the same for all."""
    return (numbers[0],) * rank if random.random() < _SQUARE else tuple(numbers)


def _channels(random: Random) -> tuple[int, int, int]:
    """Groups, input channels and output channels: mostly one group, else one per channel or several."""
    c, kind = channels(random), random.random()
    if kind < 0.7:
        return 1, c, channels(random)
    if kind < 0.85:
        return c, c, c * random.choice((1, 1, 1, 2))
    groups = random.choice((2, 4, 8, 16, 32))
    each = max(c // groups, 1)
    return groups, each * groups, max(channels(random) // groups, 1) * groups


def _padding(random: Random, taps: Sequence[int], dilation: int) -> tuple[int, ...]:
    """Padding that keeps an image's size at stride 1, or none, or any number up to that."""
    keeps, kind = [(each - 1) * dilation // 2 for each in taps], random.random()
    if kind < 0.6:
        return tuple(keeps)
    return tuple(0 if kind < 0.8 else random.randint(0, each) for each in keeps)
