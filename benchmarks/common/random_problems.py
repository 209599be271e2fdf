"""Random convolutions of the kinds that networks have, with sizes from no suite: one to three dimensions, few channels,
depthwise, grouped, stems. Sizes are drawn log-uniformly, so that odd ones are as likely as round ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from math import exp, log
from random import Random

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused

# What one problem may take: operands fit beside each other, and PyTorch's call takes between microseconds and
# milliseconds.
MOST_BYTES, FEWEST_FLOPS, MOST_FLOPS = 2**29, 1e7, 2e11
_DIMENSIONS = ("iw{} kw{} sw{} pw{} dw{}", "ih{} kh{} sh{} ph{} dh{}", "id{} kd{} sd{} pd{} dd{}")


def problems(seed: int, suffix: str) -> Iterator[ConvProblem]:
    """Without an end, a kind after the other, and for equal seeds the same. ``suffix`` is the end of their text: data
    type, direction, layouts and epilogue."""
    random = Random(seed)
    for kind in cycle((_plain, _one_dimension, _three_dimensions, _few_channels, _depthwise, _grouped, _stem, _plain)):
        problem = _drawn(kind, random, suffix)
        while problem is None:
            problem = _drawn(kind, random, suffix)
        yield problem


def _drawn(kind: Callable[[Random], str], random: Random, suffix: str) -> ConvProblem | None:
    try:
        problem = ConvProblem.parse(f"{kind(random)} {suffix}")
    except (BadInput, Refused):
        return None  # a filter that does not fit
    fits = problem.bytes <= MOST_BYTES and FEWEST_FLOPS <= problem.flops <= MOST_FLOPS
    return problem if fits else None


def _log(random: Random, least: int, most: int) -> int:
    return round(exp(random.uniform(log(least), log(most))))


def _window(random: Random, rank: int, largest: int, taps: tuple[int, ...]) -> str:
    """Sizes and filters of all dimensions, the last first."""
    stride, dilation = random.choice([1, 1, 1, 2]), random.choice([1, 1, 1, 1, 2])
    words = []
    for text in _DIMENSIONS[:rank]:
        size, tap = _log(random, 5, largest), random.choice(taps)
        words.append(text.format(size, tap, stride, tap // 2 * dilation, dilation - 1).replace(" ", ""))
    return "".join(reversed(words))


def _plain(random: Random) -> str:
    channels = f"ic{_log(random, 8, 768)}oc{_log(random, 8, 768)}"
    return f"mb{_log(random, 1, 64)}{channels}{_window(random, 2, 200, (1, 1, 3, 3, 5))}"


def _one_dimension(random: Random) -> str:
    channels = f"ic{_log(random, 4, 512)}oc{_log(random, 4, 512)}"
    return f"mb{_log(random, 1, 64)}{channels}{_window(random, 1, 8000, (1, 3, 5, 9, 15))}"


def _three_dimensions(random: Random) -> str:
    channels = f"ic{_log(random, 3, 256)}oc{_log(random, 8, 256)}"
    return f"mb{_log(random, 1, 8)}{channels}{_window(random, 3, 60, (1, 3, 3))}"


def _few_channels(random: Random) -> str:
    few, others = _log(random, 1, 6), _log(random, 1, 64)
    c, k = random.choice([(few, others), (others, few)])
    return f"mb{_log(random, 1, 32)}ic{c}oc{k}{_window(random, 2, 400, (3, 5, 7, 11))}"


def _depthwise(random: Random) -> str:
    channels = _log(random, 16, 1024)
    return f"g{channels}mb{_log(random, 1, 64)}ic{channels}oc{channels}{_window(random, 2, 120, (3, 5, 7))}"


def _grouped(random: Random) -> str:
    groups = random.choice([2, 3, 4, 8, 16, 32])
    channels = f"ic{groups * _log(random, 2, 64)}oc{groups * _log(random, 2, 64)}"
    return f"g{groups}mb{_log(random, 1, 32)}{channels}{_window(random, 2, 120, (1, 3, 5))}"


def _stem(random: Random) -> str:
    taps, stride = random.choice([(3, 2), (4, 4), (7, 2), (7, 4), (11, 4), (16, 16)])
    size = _log(random, 64, 400)
    pad = 0 if taps == stride else taps // 2
    channels = f"ic{random.choice([1, 3, 3, 4])}oc{_log(random, 16, 192)}"
    return f"mb{_log(random, 1, 64)}{channels}ih{size}kh{taps}sh{stride}ph{pad}"
