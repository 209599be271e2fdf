"""The kernel for few output channels, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.few_outputs import blocks, constants
from convwright.backends.triton.few_outputs_tiles import Strip
from convwright.backends.triton.kernel_call import KernelCall
from convwright.core.candidate import Candidate


def kernel_call(candidate: Candidate) -> KernelCall:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.few_outputs_kernel import few_outputs

    problem, strip = candidate.problem, Strip.of(candidate)
    specs = {"x": problem.x, "w": problem.w, "bias": problem.w, "residual": problem.y, "y": problem.y}
    pointers = {name: (problem.dtype.value, spec.alignment) for name, spec in specs.items()}
    pointers["bias"] = (problem.dtype.value, problem.dtype.nbytes)  # of its few loads nothing is assumed
    return KernelCall(few_outputs, pointers, constants(problem, strip), blocks(problem, strip), strip.warps, 1)
