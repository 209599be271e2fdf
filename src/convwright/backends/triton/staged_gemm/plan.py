"""The plan of products on a staged input."""

from __future__ import annotations

import torch

from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.backends.triton.staged_gemm.offers import Staging, algorithm_of, packed_bytes
from convwright.core.candidate import Candidate


class StagedGemmPlan(SequencePlan):
    """Runs one configuration of products on a staged input."""

    packed_dtype = torch.uint8

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        staged, added = (Operand.FIRST, Operand.WORKSPACE), (Operand.BIAS, Operand.RESIDUAL)
        multiplied = (Operand.WORKSPACE, Operand.SECOND, *added)
        if not Tile.of(candidate).in_parts:
            return [staged, (*multiplied, Operand.OUT)]
        return [staged, (*multiplied, Operand.SECOND_PART), (Operand.SECOND_PART, *added, Operand.OUT)]

    @staticmethod
    def second_part_from(candidate: Candidate) -> int:
        return Staging.of(candidate.problem, algorithm_of(candidate), Tile.of(candidate)).nbytes

    @staticmethod
    def packed_shape(candidate: Candidate) -> tuple[int, ...]:
        """Bytes of K T R S C, padded in C, and a scale for each K."""
        return (packed_bytes(candidate.problem, algorithm_of(candidate), Tile.of(candidate)),)


def plan_class(candidate: Candidate) -> type[StagedGemmPlan]:
    return StagedGemmPlan
