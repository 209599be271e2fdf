"""The kernel for other sizes of images as a backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convwright.backends.triton.backend import TritonKernels, device_reason
from convwright.backends.triton.fingerprints import source_hash, triton_version
from convwright.backends.triton.resize.offers import ALGORITHM, NAME, kernel_call, offers
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.errors import BackendError


class TritonResize(TritonKernels):
    """One kernel, compiled for the sizes, strides and positions of a problem."""

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"triton {triton_version()}, {ALGORITHM} {source_hash(ALGORITHM)}"

    def fingerprint_of(self, candidate: Candidate, device: DeviceFacts) -> str:
        return self.fingerprint(device)

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        return frozenset({self.fingerprint(device)})

    def candidates(self, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = device_reason(device)
        if reason is not None:
            yield Refusal(NAME, reason)
        else:
            yield from offers(problem, device)

    def called(self, id_: str, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        return self.candidates(problem, device, policy)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        from convwright.backends.triton.resize.plan import ResizePlan

        reason = device_reason(device)
        if reason is not None:
            raise BackendError(f"{candidate.id} {reason}")
        return ResizePlan.built(candidate, device, (kernel_call(candidate),))

    def written(self, plan: Plan) -> str | None:
        from convwright.backends.triton.resize.plan import ResizePlan

        return plan.text if isinstance(plan, ResizePlan) else None

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        from convwright.backends.triton.resize.plan import ResizePlan

        return ResizePlan.read(candidate, device, text)

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None:
        """Into Triton's own cache, where ``build`` finds it. Neither plans nor PyTorch are loaded."""
        kernel_call(candidate).compile(device.architecture)
