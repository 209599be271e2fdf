"""The kernel for few output channels, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.few_outputs.offers import blocks, constants
from convwright.backends.triton.few_outputs.tiles import Strip
from convwright.backends.triton.kernel_call import KernelCall
from convwright.backends.triton.operands import pair
from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem

_AT_ONCE_BYTES = 16


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.few_outputs.kernel import few_outputs

    problem, strip = candidate.problem, Strip.of(candidate)
    specs = {"x": problem.x, "w": problem.w, "bias": problem.w, "residual": problem.y, "y": problem.y}
    # Told of an alignment, the compiler gives each thread neighbouring columns to read at once. What another tap reads
    # begins elsewhere: where that is not aligned, lanes that read one column each at a time are faster.
    at_once = not strip.across and _reads_aligned(problem)
    alignments = {name: spec.alignment if at_once else problem.dtype.nbytes for name, spec in specs.items()}
    alignments["bias"] = problem.dtype.nbytes  # of its few loads nothing is assumed
    pointers = {name: (problem.dtype.value, alignment) for name, alignment in alignments.items()}
    return (KernelCall(few_outputs, pointers, constants(problem, strip), blocks(problem, strip), strip.warps, 1),)


def _reads_aligned(problem: ConvProblem) -> bool:
    """Whether every tap of a row reads from a multiple of as many columns as one instruction reads."""
    (stride, dilation), (left, _) = (
        (pair(window, 1)[1] for window in (problem.stride, problem.dilation)),
        problem.padding[-1],
    )
    at_once = _AT_ONCE_BYTES // problem.dtype.nbytes
    return stride == 1 and left % at_once == 0 and (dilation % at_once == 0 or pair(problem.taps, 1)[1] == 1)
