"""The classic algorithms in readable PyTorch. They run anywhere and are what faster ones are held against."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from convwright.backends.reference.gemm import GemmPlan, workspace_bytes
from convwright.core.candidate import Candidate, Offer, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

VERSION = "1"


class Reference:
    """``reference/gemm``: unfold, multiply, fold. Every problem, every layout, every device."""

    name = "reference"

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"{VERSION}, torch {torch.__version__}"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield Candidate(
            problem=problem,
            backend=self.name,
            algorithm="gemm",
            config=(),
            arithmetic=native_arithmetic(problem.dtype, tf32=False),
            workspace_bytes=workspace_bytes(problem),
            deterministic=True,
            source=Source.RULE,
        )

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        return GemmPlan(candidate)
