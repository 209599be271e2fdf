"""Generated kernels as a backend for expressions and copies."""

from __future__ import annotations

from convwright.backends.triton.by_role.backend import RoleKernels
from convwright.backends.triton.elementwise.offers import ALGORITHM, kernel_call, kernel_calls, offers
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.core.candidate import Candidate
from convwright.core.kinds.pointwise import PointwiseProblem


class TritonElementwise(RoleKernels):
    """One generated kernel per expression or copy; several if programs share long rows."""

    algorithm = ALGORITHM
    offers = staticmethod(offers)
    kernel_call = staticmethod(kernel_call)

    def kernel_calls(self, candidate: Candidate) -> tuple[KernelCall, ...]:
        return kernel_calls(candidate)

    def overwrites(self, candidate: Candidate) -> frozenset[str]:
        """Operands with the output's layout: a program loads all its elements of them, once, before it stores any."""
        problem = candidate.problem
        return problem.elementwise if isinstance(problem, PointwiseProblem) else frozenset()
