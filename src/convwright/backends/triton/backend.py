"""Our own kernels, written in Triton."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, get_args

from convwright.backends.triton import kernels
from convwright.backends.triton.estimates import estimated
from convwright.backends.triton.fingerprints import source_hash, triton_version, whole_hash
from convwright.backends.triton.kernels import KernelName
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.limits import beyond_32_bits
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError

if TYPE_CHECKING:
    from convwright.backends.triton.kernels import PlanClass
    from convwright.backends.triton.launching.kernel_call import KernelCall

_OLDEST_ARCHITECTURE = 80
_NOT_INSTALLED = "needs the package triton, which is not installed (PyTorch brings it on Linux only)"


class TritonKernels:
    """Kernels for NVIDIA GPUs from sm_80 on. In Triton's interpreter (``TRITON_INTERPRET=1``) they run on the CPU."""

    name = "triton"

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"triton {triton_version()}, kernels {whole_hash()}"

    def fingerprint_of(self, candidate: Candidate, device: DeviceFacts) -> str:
        return _fingerprint(kernel_of(candidate))

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        return frozenset(map(_fingerprint, get_args(KernelName)))

    def library(self) -> str:
        return _NOT_INSTALLED if find_spec("triton") is None else f"Triton {triton_version()}"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        return self._listed(kernels.OFFERED[problem.direction], problem, device, policy)

    def called(self, id_: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        name = kernels.called(id_.partition("[")[0].removeprefix(f"{self.name}/"), problem.direction)
        return self._listed(() if name is None else (name,), problem, device, policy)

    def _listed(
        self, names: Sequence[KernelName], problem: ConvProblem, device: DeviceFacts, policy: Policy
    ) -> Iterator[Offer]:
        reason = device_reason(device) or _interpreter_reason(problem) or beyond_32_bits(problem)
        if reason is not None:
            yield from (Refusal(kernels.kernel(name).NAME, reason) for name in names)
        else:
            yield from _by_turns(offer for name in names for offer in _offers(name, problem, device, policy))

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        reason = device_reason(device)
        if reason is not None:
            raise BackendError(f"{candidate.id} {reason}")
        return plan_class(candidate).built(candidate, device, kernel_calls(candidate))

    def written(self, plan: Plan) -> str | None:
        return plan.text if isinstance(plan, plan_class(plan.candidate)) else None

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        return plan_class(candidate).read(candidate, device, text)

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None:
        """Compile into Triton's cache, from which ``build`` loads."""
        for call in kernel_calls(candidate):
            call.compile(device.architecture)

    def launches(self, candidate: Candidate, *, packs: bool) -> int:
        plan = plan_class(candidate)
        return plan.steps(candidate) + (packs and plan.packed_shape(candidate) is not None)

    def packed_bytes(self, candidate: Candidate) -> int | None:
        plan = plan_class(candidate)
        shape = plan.packed_shape(candidate)
        return None if shape is None else prod(shape) * plan.packed_dtype.itemsize

    def overwrites(self, candidate: Candidate) -> frozenset[str]:
        """The residual: a program loads each element of it once, just before it stores the same element of the
        output."""
        return frozenset({Role.RESIDUAL}).intersection(candidate.problem.operands)

    def load_compiler(self) -> None:
        import triton.backends.compiler
        import triton.compiler
        import triton.runtime.cache

        kernels.sources()

        # Before Triton looks up its first kernel on disk, it reads its own sources for 0.3 s, and keeps the result.
        for home in (triton.runtime.cache, triton.compiler.compiler):
            if hasattr(home, "triton_key"):
                home.triton_key()
                return


def _offers(name: KernelName, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """The offers of one kernel, with estimated times."""
    kernel = kernels.kernel(name)
    for offer in kernel.offers(problem, device, policy):
        if isinstance(offer, Refusal):
            yield offer
        else:
            yield estimated(offer, name, kernel.cycles_of(offer, device), device)


def _by_turns(offers: Iterable[Offer]) -> Iterator[Offer]:
    """The best configuration of each algorithm, then the next of each, then the refusals: if not all can be compiled,
    trying every algorithm gains most."""
    listed: dict[str, list[Candidate]] = {}
    refusals: list[Refusal] = []
    for offer in offers:
        if isinstance(offer, Refusal):
            refusals.append(offer)
        else:
            listed.setdefault(offer.algorithm, []).append(offer)
    yield from (candidate for turn in zip_longest(*listed.values()) for candidate in turn if candidate is not None)
    yield from refusals


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch. Loads neither plans nor PyTorch."""
    return kernels.kernel(kernel_of(candidate)).kernel_calls(candidate)


def plan_class(candidate: Candidate) -> PlanClass:
    """The class of the candidate's plans. Loads PyTorch."""
    return kernels.plans(kernel_of(candidate)).plan_class(candidate)


def kernel_of(candidate: Candidate) -> KernelName:
    """The kernel that offers the candidate."""
    name = kernels.called(candidate.algorithm, candidate.problem.direction)
    assert name is not None
    return name


@cache
def _fingerprint(name: KernelName) -> str:
    return f"triton {triton_version()}, {name} {source_hash(name.replace('-', '_'))}"


def device_reason(device: DeviceFacts) -> str | None:
    """Why no kernel can run on ``device``; None if kernels can."""
    if find_spec("triton") is None:
        return _NOT_INSTALLED
    from convwright.backends.triton.launching.kernel_call import interpreting

    if interpreting():
        return None
    if device.kind != "cuda":
        return f"needs an NVIDIA GPU of architecture sm_80 or newer, got {device.name} ({device.kind})"
    number = device.architecture.removeprefix("sm_")
    if not number.isdigit() or int(number) < _OLDEST_ARCHITECTURE:
        return f"needs an NVIDIA GPU of architecture sm_80 or newer, {device.name} is {device.architecture}"
    return None


def _interpreter_reason(problem: ConvProblem) -> str | None:
    from convwright.backends.triton.launching.kernel_call import interpreting

    # The interpreter stores bf16 as 16-bit integers, and multiplies these.
    if problem.dtype is DType.BF16 and interpreting():
        return "cannot run in Triton's interpreter, which multiplies bf16 wrong"
    return None
