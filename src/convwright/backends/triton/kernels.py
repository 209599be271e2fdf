"""Our kernels: their interface, the kernels for each direction, and their modules.

A kernel is imported when it is first used. Its ``offers`` load neither Triton nor PyTorch, its ``kernel`` loads only
Triton, and its ``plan`` loads only PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

if TYPE_CHECKING:
    from convwright.backends.triton.launching.kernel_call import KernelCall
    from convwright.backends.triton.launching.sequence_plan import NamedOperandsPlan, SequencePlan
    from convwright.backends.triton.launching.single_plan import SingleKernelPlan

    PlanClass = type[SingleKernelPlan] | type[SequencePlan] | type[NamedOperandsPlan]

# The names of a kernel's algorithms begin with the kernel's name.
KernelName = Literal[
    "banded-gemm", "boxed-gemm", "boxed-weight-gradient", "direct", "few-weights", "folded-gemm", "implicit-gemm",
    "input-gradient", "staged-gemm", "staged-weight-gradient", "taps-first", "weight-gradient", "wide-direct",
    "winograd",
]  # fmt: skip
OFFERED: Mapping[Direction, tuple[KernelName, ...]] = {
    Direction.FORWARD: (
        "staged-gemm", "boxed-gemm", "folded-gemm", "implicit-gemm", "banded-gemm", "wide-direct", "taps-first",
        "direct", "winograd",
    ),
    Direction.BACKWARD_DATA: ("input-gradient", "banded-gemm", "wide-direct", "taps-first", "direct"),
    Direction.BACKWARD_WEIGHT: (
        "staged-weight-gradient", "boxed-weight-gradient", "weight-gradient", "few-weights",
    ),
}  # fmt: skip


class Kernel(Protocol):
    """The interface of a kernel's module ``offers``."""

    NAME: str
    """The name in refusals."""

    def offers(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """Every configuration worth trying, or the reason why the kernel does not support the problem."""

    def cycles_of(self, candidate: Candidate, device: DeviceFacts) -> float:
        """Estimated cycles of the busiest multiprocessor."""

    def kernel_calls(self, candidate: Candidate) -> tuple[KernelCall, ...]:
        """The kernels to launch. Loads Triton."""


class Plans(Protocol):
    """The interface of a kernel's module ``plan``."""

    def plan_class(self, candidate: Candidate) -> PlanClass:
        """The class of the candidate's plans."""


def called(algorithm: str, direction: Direction) -> KernelName | None:
    """The kernel of an algorithm; None if there is none.

    >>> called("implicit-gemm-tf32-packed", Direction.FORWARD)
    'implicit-gemm'
    """
    return next((name for name in OFFERED[direction] if algorithm.startswith(name)), None)


def kernel(name: KernelName) -> Kernel:
    """The ``offers`` of a kernel. Loads neither Triton nor PyTorch."""
    match name:
        case "banded-gemm":
            from convwright.backends.triton.banded_gemm import offers as banded_gemm

            return banded_gemm
        case "boxed-gemm":
            from convwright.backends.triton.boxed_gemm import offers as boxed_gemm

            return boxed_gemm
        case "boxed-weight-gradient":
            from convwright.backends.triton.boxed_weight_gradient import offers as boxed_weight_gradient

            return boxed_weight_gradient
        case "direct":
            from convwright.backends.triton.direct import offers as direct

            return direct
        case "few-weights":
            from convwright.backends.triton.few_weights import offers as few_weights

            return few_weights
        case "folded-gemm":
            from convwright.backends.triton.folded_gemm import offers as folded_gemm

            return folded_gemm
        case "implicit-gemm":
            from convwright.backends.triton.implicit_gemm import offers as implicit_gemm

            return implicit_gemm
        case "input-gradient":
            from convwright.backends.triton.input_gradient import offers as input_gradient

            return input_gradient
        case "staged-gemm":
            from convwright.backends.triton.staged_gemm import offers as staged_gemm

            return staged_gemm
        case "staged-weight-gradient":
            from convwright.backends.triton.staged_weight_gradient import offers as staged_weight_gradient

            return staged_weight_gradient
        case "taps-first":
            from convwright.backends.triton.taps_first import offers as taps_first

            return taps_first
        case "weight-gradient":
            from convwright.backends.triton.weight_gradient import offers as weight_gradient

            return weight_gradient
        case "wide-direct":
            from convwright.backends.triton.wide_direct import offers as wide_direct

            return wide_direct
        case "winograd":
            from convwright.backends.triton.winograd import offers as winograd

            return winograd


def plans(name: KernelName) -> Plans:
    """The ``plan`` of a kernel. Loads PyTorch."""
    match name:
        case "banded-gemm":
            from convwright.backends.triton.banded_gemm import plan as banded_gemm

            return banded_gemm
        case "boxed-gemm":
            from convwright.backends.triton.boxed_gemm import plan as boxed_gemm

            return boxed_gemm
        case "boxed-weight-gradient":
            from convwright.backends.triton.boxed_weight_gradient import plan as boxed_weight_gradient

            return boxed_weight_gradient
        case "direct":
            from convwright.backends.triton.direct import plan as direct

            return direct
        case "few-weights":
            from convwright.backends.triton.few_weights import plan as few_weights

            return few_weights
        case "folded-gemm":
            from convwright.backends.triton.folded_gemm import plan as folded_gemm

            return folded_gemm
        case "implicit-gemm":
            from convwright.backends.triton.implicit_gemm import plan as implicit_gemm

            return implicit_gemm
        case "input-gradient":
            from convwright.backends.triton.input_gradient import plan as input_gradient

            return input_gradient
        case "staged-gemm":
            from convwright.backends.triton.staged_gemm import plan as staged_gemm

            return staged_gemm
        case "staged-weight-gradient":
            from convwright.backends.triton.staged_weight_gradient import plan as staged_weight_gradient

            return staged_weight_gradient
        case "taps-first":
            from convwright.backends.triton.taps_first import plan as taps_first

            return taps_first
        case "weight-gradient":
            from convwright.backends.triton.weight_gradient import plan as weight_gradient

            return weight_gradient
        case "wide-direct":
            from convwright.backends.triton.wide_direct import plan as wide_direct

            return wide_direct
        case "winograd":
            from convwright.backends.triton.winograd import plan as winograd

            return winograd


def sources() -> tuple[ModuleType, ...]:
    """The Triton source of all kernels. Loads Triton."""
    names = (name.replace("-", "_") for name in get_args(KernelName))
    return tuple(import_module(f"{__package__}.{name}.kernel") for name in names)
