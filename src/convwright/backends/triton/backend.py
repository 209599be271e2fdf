"""Our own kernels, written in Triton."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convwright.backends.triton.estimates import estimated
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError

if TYPE_CHECKING:
    from convwright.backends.triton.launching.kernel_call import KernelCall
    from convwright.backends.triton.launching.sequence_plan import SequencePlan
    from convwright.backends.triton.launching.single_plan import SingleKernelPlan

_OLDEST_ARCHITECTURE = 80
# What is offered for each direction. Each kernel has a folder, and its name begins those of its algorithms.
_KERNELS: Mapping[Direction, tuple[str, ...]] = {
    Direction.FORWARD: (
        "staged_gemm", "boxed_gemm", "folded_gemm", "implicit_gemm", "banded_gemm", "wide_direct", "taps_first",
        "direct", "winograd",
    ),
    Direction.BACKWARD_DATA: ("input_gradient", "banded_gemm", "wide_direct", "taps_first", "direct"),
    Direction.BACKWARD_WEIGHT: (
        "staged_weight_gradient", "boxed_weight_gradient", "weight_gradient", "few_weights",
    ),
}  # fmt: skip
_NOT_INSTALLED = "needs the package triton, which is not installed (PyTorch brings it on Linux only)"


class TritonKernels:
    """Kernels for NVIDIA GPUs from sm_80 on; in Triton's interpreter (``TRITON_INTERPRET=1``) they run on the CPU."""

    name = "triton"

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"triton {_triton_version()}, kernels {_source_hash()}"

    def library(self) -> str:
        return _NOT_INSTALLED if find_spec("triton") is None else f"Triton {_triton_version()}"

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        return self._listed(_KERNELS[problem.direction], problem, device, policy)

    def called(self, id_: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        kernel = _kernel_called(id_.partition("[")[0].removeprefix(f"{self.name}/"), problem.direction)
        return self._listed(() if kernel is None else (kernel,), problem, device, policy)

    def _listed(
        self, kernels: Sequence[str], problem: ConvProblem, device: DeviceFacts, policy: Policy
    ) -> Iterator[Offer]:
        reason = device_reason(device) or _interpreter_reason(problem)
        if reason is not None:
            yield from (Refusal(_module(kernel, "offers").NAME, reason) for kernel in kernels)
        else:
            yield from _by_turns(offer for kernel in kernels for offer in _offers(kernel, problem, device, policy))

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        reason = device_reason(device)
        if reason is not None:
            raise BackendError(f"{candidate.id} {reason}")
        return _plan_class(candidate).built(candidate, device, kernel_calls(candidate))

    def written(self, plan: Plan) -> str | None:
        return plan.text if isinstance(plan, _plan_class(plan.candidate)) else None

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        return _plan_class(candidate).read(candidate, device, text)

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None:
        """Into Triton's own cache, where ``build`` finds it."""
        for call in kernel_calls(candidate):
            call.compile(device.architecture)

    def launches(self, candidate: Candidate, *, packs: bool) -> int:
        plan = _plan_class(candidate)
        return plan.steps(candidate) + (packs and plan.packed_shape(candidate) is not None)

    def load_compiler(self) -> None:
        import triton.backends.compiler
        import triton.compiler
        import triton.runtime.cache

        for kernel in {each for kernels in _KERNELS.values() for each in kernels}:
            _module(kernel, "kernel")

        # Triton reads all of itself, for 0.3 s, before it looks for the first kernel on disk, and keeps what that gave.
        for home in (triton.runtime.cache, triton.compiler.compiler):
            if hasattr(home, "triton_key"):
                home.triton_key()
                return


def _offers(kernel: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """What one kernel offers, with what each should take."""
    home = _module(kernel, "offers")
    for offer in home.offers(problem, device, policy):
        if isinstance(offer, Refusal):
            yield offer
        else:
            yield estimated(offer, kernel, home.cycles_of(offer, device), device)


def _by_turns(offers: Iterable[Offer]) -> Iterator[Offer]:
    """The best configuration of each algorithm, then the next of each: where there is no time to compile all, it is
    algorithms that differ most. Behind them come the refusals."""
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
    """What the driver is asked to launch. Loads neither plans nor PyTorch."""
    calls: tuple[KernelCall, ...] = _module(_kernel_of(candidate), "call").kernel_calls(candidate)
    return calls


def _plan_class(candidate: Candidate) -> type[SingleKernelPlan] | type[SequencePlan]:
    plan: type[SingleKernelPlan] | type[SequencePlan] = _module(_kernel_of(candidate), "plan").plan_class(candidate)
    return plan


def _kernel_of(candidate: Candidate) -> str:
    kernel = _kernel_called(candidate.algorithm, candidate.problem.direction)
    assert kernel is not None
    return kernel


def _kernel_called(algorithm: str, direction: Direction) -> str | None:
    return next((each for each in _KERNELS[direction] if algorithm.startswith(each.replace("_", "-"))), None)


def _module(kernel: str, name: str) -> Any:
    """One of those that every kernel's folder has: ``offers``, ``call``, ``kernel``, ``plan``."""
    return import_module(f"{__package__}.{kernel}.{name}")


def device_reason(device: DeviceFacts) -> str | None:
    """Why no kernel can run on ``device``, or None where kernels can."""
    if find_spec("triton") is None:
        return _NOT_INSTALLED
    from convwright.backends.triton.launching.kernel_call import interpreting

    if interpreting():
        return None
    if device.kind != "cuda":
        return f"needs an NVIDIA GPU of architecture sm_80 or newer, this is {device.name} ({device.kind})"
    number = device.architecture.removeprefix("sm_")
    if not number.isdigit() or int(number) < _OLDEST_ARCHITECTURE:
        return f"needs an NVIDIA GPU of architecture sm_80 or newer, {device.name} is {device.architecture}"
    return None


def _interpreter_reason(problem: ConvProblem) -> str | None:
    from convwright.backends.triton.launching.kernel_call import interpreting

    # It holds bf16 as bare 16-bit integers and multiplies those.
    if problem.dtype is DType.BF16 and interpreting():
        return "cannot run in Triton's interpreter, whose products of bf16 are wrong"
    return None


@cache
def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "absent"


@cache
def _source_hash() -> str:
    """Of all files beside this one: a kernel's time depends on its launch and its configurations too."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
