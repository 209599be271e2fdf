"""What of an input is staged, and how much room that takes."""

from __future__ import annotations

from convwright.backends.triton.operands import group_sizes, is_in_planes
from convwright.core.problem import ConvProblem

NUMBER_BYTES, SCALE_BYTES = 2, 4
_ALIGNED = 256
# Of fewer channels a staged block holds little but zeros.
_LEAST_CHANNELS = 16


def extents(problem: ConvProblem) -> tuple[int, int, int]:
    """Planes, rows and columns of an image that some tap reads, its borders among them, in planes an even number."""
    read = [(axis.out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1 for axis in problem.axes]
    deep, high, wide = [1] * (3 - len(read)) + read
    # Of an odd width the compiler does not see that pixels of planes lie side by side, and reads them by channels:
    # to stage 105 MB took 68 µs where 31 suffice (H200).
    return deep, high, wide + wide % 2 if is_in_planes(problem.x) else wide


def padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def aligned(nbytes: int) -> int:
    """With what lies between them and what follows."""
    return padded(nbytes, _ALIGNED)


def channels_reason(problem: ConvProblem, least_outputs: int = _LEAST_CHANNELS) -> str | None:
    """Why it does not pay to stage the channels of ``problem``, or None where it may."""
    inputs, outputs = group_sizes(problem)
    if inputs >= _LEAST_CHANNELS and outputs >= least_outputs:
        return None
    least = f"at least {_LEAST_CHANNELS} input and {least_outputs} output channels"
    return f"serves {'groups of ' if problem.groups > 1 else ''}{least}, got {inputs} and {outputs}"
