"""The plan of products with band matrices."""

from __future__ import annotations

import torch

from convwright.backends.triton.banded_gemm.offers import Tile, forward_of
from convwright.backends.triton.launching.single_plan import SingleKernelPlan
from convwright.core.candidate import Candidate


class BandedGemmPlan(SingleKernelPlan):
    """Runs one configuration of products with band matrices."""

    packed_dtype = torch.uint8

    @staticmethod
    def packed_shape(candidate: Candidate) -> tuple[int, ...]:
        """Bytes of all bands."""
        return (Tile.of(candidate).packed_bytes(forward_of(candidate.problem)),)


def plan_class(candidate: Candidate) -> type[BandedGemmPlan]:
    return BandedGemmPlan
