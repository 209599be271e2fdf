"""The kernel for few channels, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.direct.offers import as_forward, blocks, constants
from convwright.backends.triton.direct.tiles import Strip
from convwright.backends.triton.kernel_call import KernelCall
from convwright.backends.triton.operands import pair
from convwright.core.candidate import Candidate
from convwright.core.fusing import is_rare
from convwright.core.problem import ConvProblem

_AT_ONCE_BYTES = 16


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.direct.kernel import direct

    problem, strip = candidate.problem, Strip.of(candidate)
    forward = as_forward(problem)
    x, w, y = forward.x, problem.w, forward.y
    specs = {"x": x, "w": w, "bias": w, "residual": y, "y": y} | ({"z": x} if is_rare(problem) else {})
    # Told of an alignment, the compiler gives each thread neighbouring columns to read at once. What another tap reads
    # begins elsewhere: where that is not aligned, lanes that read one column each at a time are faster.
    at_once = not strip.across and _reads_aligned(forward)
    alignments = {name: spec.alignment if at_once else problem.dtype.nbytes for name, spec in specs.items()}
    alignments["bias"] = problem.dtype.nbytes  # of its few loads nothing is assumed
    pointers = {name: (problem.dtype.value, alignment) for name, alignment in alignments.items()}
    told = constants(problem, strip) | ({} if is_rare(problem) else {"z": None})
    return (KernelCall(direct, pointers, told, blocks(problem, strip), strip.warps, 1),)


def _reads_aligned(problem: ConvProblem) -> bool:
    """Whether every tap of a row reads from a multiple of as many columns as one instruction reads."""
    (stride, dilation), (left, _) = (
        (pair(window, 1)[1] for window in (problem.stride, problem.dilation)),
        problem.padding[-1],
    )
    at_once = _AT_ONCE_BYTES // problem.dtype.nbytes
    return stride == 1 and left % at_once == 0 and (dilation % at_once == 0 or pair(problem.taps, 1)[1] == 1)
