"""The plan of products with operands in boxes."""

from __future__ import annotations

from convwright.backends.triton.launching.single_plan import SingleKernelPlan
from convwright.backends.triton.packing.weight import channels_last_of
from convwright.core.candidate import Candidate


class BoxedGemmPlan(SingleKernelPlan):
    """Runs one configuration of products with operands in boxes."""

    laid = staticmethod(channels_last_of)


def plan_class(candidate: Candidate) -> type[BoxedGemmPlan]:
    return BoxedGemmPlan
