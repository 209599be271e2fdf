"""The configurations of the kernel for few channels, and which few are worth trying on a problem."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import sm_count
from convwright.backends.triton.operands import depth, group_sizes, pair
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

MOST_STRIPS = 6
_MOST_ALIKE = 2  # with as many rows: they differ in how many columns and channels lie where
_LANES = 32
# Registers that sums and weights of a thread may take.
_MOST_REGISTERS = 160
# What takes the compiler long: sums, more so where groups of warps add theirs up, which read weights lane by lane, too.
_MOST_SUMS, _MOST_SPLIT_SUMS, _MOST_SPLIT_WEIGHTS = 32, 16, 64
_MOST_WEIGHTS = 400  # of a plane of an input channel
# Where output channels are so many that they are divided, to write them takes as long as all else.
FEW_OUTPUTS = 16
_MOST_SUMS_OF_A_PART = 16
_SCHEDULERS = 4  # of a multiprocessor, each of which issues one instruction at a time
# How long a step over one channel waits for memory, however few warps there are.
_WAITING_CYCLES = 600


@dataclass(frozen=True, slots=True)
class Strip(Configuration):
    """What one block computes: ``bq`` columns of as many rows of an image as ``rows`` says, for ``outputs`` channels
    of a group.

    The input channels are split among so many groups of its warps. ``across`` is 1 where its columns are those of all
    groups of channels.
    """

    rows: int
    bq: int
    split: int
    across: int
    warps: int
    outputs: int = 1

    @property
    def columns_per_thread(self) -> int:
        return self.bq * self.split // (_LANES * self.warps)

    def blocks(self, problem: ConvProblem) -> int:
        gap, _ = spacing(problem)
        P, Q = pair(problem.y.shape[2:], 1)
        apart, together = (1, problem.groups) if self.across else (problem.groups, 1)
        images = problem.n * depth(problem.y.shape[2:], 1)
        return images * apart * -(-P // (self.rows * gap)) * gap * -(-Q * together // self.bq) * self.parts(problem)

    def parts(self, problem: ConvProblem) -> int:
        """Into how many parts the output channels of a group are divided."""
        _, outputs = group_sizes(problem)
        return -(-outputs // self.outputs)


_ROWS = (1, 2, 4, 8)
STRIPS = (
    *(
        Strip(rows, _LANES * warps * columns, 1, 0, warps)
        for rows, columns, warps in product(_ROWS, (1, 2, 4), (1, 2, 4))
    ),
    *(Strip(rows, _LANES, split, 0, split) for rows, split in product(_ROWS, (2, 4, 8))),
    *(Strip(rows, _LANES * warps * columns, 1, 1, warps) for rows, columns, warps in product(_ROWS, (1, 2), (1, 2, 4))),
)


def in_lanes_only(problem: ConvProblem) -> bool:
    """Whether the channels of a pixel lie side by side, so that lanes have to run across groups."""
    return any(spec.shape[-1] > 1 and spec.strides[-1] != 1 for spec in (problem.x, problem.y))


def spacing(problem: ConvProblem) -> tuple[int, int]:
    """How many rows of the output lie from one row of a strip to the next, and how many dilations what they read.

    The least at which taps of one row of a strip read what others read for another.
    """
    (stride, _), (dilation, _) = pair(problem.stride, 1), pair(problem.dilation, 1)
    common = gcd(stride, dilation)
    return dilation // common, stride // common


def best_strips(problem: ConvProblem, device: DeviceFacts, count: int = MOST_STRIPS) -> tuple[Strip, ...]:
    """The ``count`` strips that should be fastest, by estimate, the best first, and few alike."""
    filled = (filled_strip(strip, problem) for strip in STRIPS)
    fitting = [strip for strip in filled if strip is not None]
    ranked = sorted(fitting, key=lambda strip: _cycles(strip, problem, device))
    alike = Counter[tuple[int, int]]()
    chosen = []
    for strip in ranked:
        alike[strip.rows, strip.across] += 1
        if alike[strip.rows, strip.across] <= _MOST_ALIKE:
            chosen.append(strip)
    return tuple(chosen[:count])


def filled_strip(strip: Strip, problem: ConvProblem) -> Strip | None:
    """With as many output channels as a thread has registers for, all parts of a group alike; None where it does not
    serve."""
    if problem.groups == 1 if strip.across else in_lanes_only(problem):
        return None
    inputs, outputs = group_sizes(problem)
    most = min(_most_outputs(strip, problem), outputs)
    if outputs > FEW_OUTPUTS:
        most = min(most, _MOST_SUMS_OF_A_PART // strip.rows)
    if most < 1 or strip.split > inputs:
        return None
    return replace(strip, outputs=-(-outputs // -(-outputs // most)))


def _most_outputs(strip: Strip, problem: ConvProblem) -> int:
    """With which it is compiled soon, and into registers."""
    R, S = pair(problem.taps, 1)
    most = min(
        _MOST_SUMS // strip.rows,
        _MOST_WEIGHTS // (R * S),
        _MOST_REGISTERS // (strip.rows * strip.columns_per_thread + R),
    )
    if strip.split == 1:
        return most
    return min(most, _MOST_SPLIT_SUMS // strip.rows, _MOST_SPLIT_WEIGHTS // (R * S))


def _cycles(strip: Strip, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the strips that cannot win."""
    (R, S), (_, apart) = pair(problem.taps, 1), spacing(problem)
    warps = -(-strip.blocks(problem) // sm_count(device)) * strip.warps
    inputs, _ = group_sizes(problem)
    reads = ((strip.rows - 1) * apart + R) * S * strip.columns_per_thread
    weights = R * S * strip.outputs
    read = reads + weights * (strip.columns_per_thread if strip.across else 1)
    instructions = read + weights * strip.rows * strip.columns_per_thread
    issuing = max(warps * read, -(-warps // _SCHEDULERS) * instructions)
    return -(-inputs // strip.split) * depth(problem.taps, 1) * max(issuing, _WAITING_CYCLES + instructions)
