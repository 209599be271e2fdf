"""The classic algorithms in readable PyTorch. They run on any device; faster kernels are compared with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

from convwright.backends.reference.finite import FinitePlan, Spreading
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.fusing import why_not_fused
from convwright.core.limits import beyond_32_bits
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError

VERSION = "3"


class Algorithm(Protocol):
    """The interface of an algorithm's module in this folder."""

    def offers(self, problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
        """The candidates for ``problem``, the most promising first, or a refusal of each that cannot compute it."""

    def plan(self, candidate: Candidate) -> Plan:
        """One of those candidates, ready to run."""


# The order in which they are offered.
ALGORITHMS = ("kn2row", "gemm", "direct", "winograd", "fft", "fft-tiled")


class Reference:
    """Each classic algorithm by its definition, for every layout and device."""

    name = "reference"

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"{VERSION}, torch {torch.__version__}"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        beyond = beyond_32_bits(problem) if device.kind == "cuda" else None
        for name in ALGORITHMS:
            reason = beyond or why_not_fused(problem) or _too_narrow(problem, name)
            if reason is not None:
                yield Refusal(f"reference/{name}", reason)
                continue
            yield from _algorithm(name).offers(problem, device)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        plan = _algorithm(candidate.algorithm).plan(candidate)
        return FinitePlan(plan) if device.kind == "cpu" and isinstance(plan, Spreading) else plan


def _algorithm(name: str) -> Algorithm:
    """The algorithm's module, imported when it is first used."""
    match name:
        case "kn2row":
            from convwright.backends.reference import kn2row

            return kn2row
        case "gemm":
            from convwright.backends.reference import gemm

            return gemm
        case "direct":
            from convwright.backends.reference import direct

            return direct
        case "winograd":
            from convwright.backends.reference import winograd

            return winograd
        case "fft":
            from convwright.backends.reference import fft

            return fft
        case "fft-tiled":
            from convwright.backends.reference import fft_tiled

            return fft_tiled
        case _:
            raise BackendError(f"the reference algorithm must be one of {', '.join(ALGORITHMS)}, got {name!r}")


def _too_narrow(problem: ConvProblem, name: str) -> str | None:
    if problem.dtype.narrow and name != "direct":
        return f"{problem.dtype} is computed only by reference/direct, in a wider dtype"
    return None
