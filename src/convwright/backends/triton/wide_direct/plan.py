"""The kernel whose threads compute patches made ready for one problem."""

from __future__ import annotations

from convwright.backends.triton.direct.plan import DirectGradientPlan, DirectPlan
from convwright.backends.triton.wide_direct.call import kernel_calls
from convwright.core.candidate import Candidate
from convwright.core.fusing import is_rare


class WideDirectPlan(DirectPlan):
    """Runs one configuration."""

    kernel_calls = staticmethod(kernel_calls)


class WideDirectGradientPlan(DirectGradientPlan):
    """Runs one that multiplies dy by an activation's derivative."""

    kernel_calls = staticmethod(kernel_calls)


def plan_class(candidate: Candidate) -> type[WideDirectPlan] | type[WideDirectGradientPlan]:
    return WideDirectGradientPlan if is_rare(candidate.problem) else WideDirectPlan
