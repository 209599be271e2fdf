"""The registered kernels for one kind of problem, as a backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convwright.backends.user.kernel import UserKernel
from convwright.core.candidate import Candidate, Offer, Refusal, Source, leaf_id
from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic, plain_arithmetic
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.errors import BackendError, in_words

# For these kinds PyTorch's own call multiplies matrices.
_MULTIPLYING = ("conv", "linear")


class UserKernels:
    """An immutable set of kernels. Registering or removing a kernel replaces it by another."""

    name = "user"
    only_here = "is registered only in this process, but candidates are measured in another"

    def __init__(self, kernels: Sequence[UserKernel]) -> None:
        self.kernels = {kernel.name: kernel for kernel in kernels}

    def fingerprint(self, device: DeviceFacts) -> str:
        return ", ".join(sorted(map(_fingerprint, self.kernels.values())))

    def fingerprint_of(self, candidate: Candidate, device: DeviceFacts) -> str:
        return _fingerprint(self._kernel(candidate))

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        return frozenset(map(_fingerprint, self.kernels.values()))

    def candidates(self, problem: Problem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        for kernel in self.kernels.values():
            reason = kernel.why_not(problem, device)
            yield _candidate(kernel, problem) if reason is None else Refusal(_id(kernel), reason)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        from convwright.backends.user.plan import UserConvPlan, UserPlan

        plan = UserConvPlan if candidate.problem.kind == "conv" else UserPlan
        return plan(candidate, self._kernel(candidate), device)

    def _kernel(self, candidate: Candidate) -> UserKernel:
        if candidate.algorithm not in self.kernels:
            raise BackendError(f"no kernel {candidate.algorithm!r} is registered any more: call register_kernel again")
        return self.kernels[candidate.algorithm]


def _fingerprint(kernel: UserKernel) -> str:
    return f"{kernel.name} version {kernel.version}"


def _id(kernel: UserKernel) -> str:
    return leaf_id(UserKernels.name, kernel.name, ())


def _candidate(kernel: UserKernel, problem: Problem) -> Offer:
    try:
        workspace = kernel.workspace_bytes
        nbytes = workspace if isinstance(workspace, int) else int(workspace(problem))
    except Exception as error:  # a user's function may raise anything
        return Refusal(_id(kernel), f"its `workspace_bytes` raised {in_words(error)}")
    dtype = problem.dtype
    return Candidate(
        problem=problem,
        backend=UserKernels.name,
        algorithm=kernel.name,
        config=(),
        arithmetic=native_arithmetic(dtype, tf32=False) if problem.kind in _MULTIPLYING else plain_arithmetic(dtype),
        workspace_bytes=nbytes,
        deterministic=True if kernel.deterministic else None,
        source=Source.RULE,
        saves_products=True,  # its algorithm is unknown
    )
