"""The kernels of one algorithm as a backend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from convwright.backends.triton.backend import TritonKernels, device_reason
from convwright.backends.triton.by_role.tile import launches
from convwright.backends.triton.fingerprints import source_hash, triton_version
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.errors import BackendError


class RoleKernels(TritonKernels):
    """Kernels of one algorithm, which has its folder's name. A call launches one kernel, or as many as a configuration
    says."""

    algorithm: ClassVar[str]

    @staticmethod
    @abstractmethod
    def offers(problem: Any, device: DeviceFacts) -> Iterator[Offer]:
        """Every configuration worth trying, or the reason why none supports the problem."""

    @staticmethod
    @abstractmethod
    def kernel_call(candidate: Candidate) -> KernelCall:
        """The kernel to launch."""

    def kernel_calls(self, candidate: Candidate) -> tuple[KernelCall, ...]:
        """All kernels to launch, in order."""
        return (self.kernel_call(candidate),)

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"triton {triton_version()}, {self.algorithm} {source_hash(self.algorithm)}"

    def fingerprint_of(self, candidate: Candidate, device: DeviceFacts) -> str:
        return self.fingerprint(device)

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        return frozenset({self.fingerprint(device)})

    def candidates(self, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = device_reason(device)
        if reason is not None:
            yield Refusal(f"{self.name}/{self.algorithm}", reason)
        else:
            yield from self.offers(problem, device)

    def called(self, id_: str, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        return self.candidates(problem, device, policy)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        from convwright.backends.triton.by_role.plan import RoleKernelPlan

        reason = device_reason(device)
        if reason is not None:
            raise BackendError(f"{candidate.id} {reason}")
        return RoleKernelPlan.built(candidate, device, self.kernel_calls(candidate))

    def written(self, plan: Plan) -> str | None:
        from convwright.backends.triton.by_role.plan import RoleKernelPlan

        return plan.text if isinstance(plan, RoleKernelPlan) else None

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        from convwright.backends.triton.by_role.plan import RoleKernelPlan

        return RoleKernelPlan.read(candidate, device, text)

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None:
        """Compile into Triton's cache, from which ``build`` loads. Loads neither plans nor PyTorch."""
        for call in self.kernel_calls(candidate):
            call.compile(device.architecture)

    def launches(self, candidate: Candidate, *, packs: bool) -> int:
        return launches(candidate)
