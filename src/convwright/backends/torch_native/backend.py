"""PyTorch's own calls, and other calls of the libraries that PyTorch brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

import torch

from convwright import flags
from convwright.backends.torch_native import cudnn, onednn
from convwright.backends.torch_native.extended_epilogue import ExtendedEpiloguePlan
from convwright.backends.torch_native.onednn_faults import fault_of_pytorchs_call
from convwright.backends.torch_native.own import TorchPlan, own, torch_candidate
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.fusing import has_extended_epilogue, why_not_fused
from convwright.core.limits import beyond_32_bits
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

_WRONG_IN_TF32 = "PyTorch's call uses cuDNN, which computes wrong results where an output reads only padding"
cudnn_version: Callable[[], int | None] = torch.backends.cudnn.version
_PLANS: dict[str, Callable[[Candidate], Plan]] = {
    "default": lambda candidate: (
        ExtendedEpiloguePlan(candidate, own) if has_extended_epilogue(candidate.problem) else TorchPlan(candidate)
    ),
    cudnn.NAME: cudnn.plan,
    onednn.NAME: onednn.OneDnnPlan,
    onednn.FUSED: onednn.OneDnnPlan,
}


class TorchNative:
    """``torch/default`` calls ``F.conv2d``, its siblings and their gradients. Other candidates call the libraries that
    PyTorch brings through PyTorch's operators, in ways that ``F.conv2d`` does not.

    For fp32 on a GPU it is listed twice, with PyTorch's TF32 flag on and off, since these are two computations. The one
    that PyTorch's flag selects at the call is the baseline.
    """

    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return _libraries(device) + "".join(word for word, holds in _switches(device) if holds)

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        choices = product(*(("", word) for word, _ in _switches(device)))
        return frozenset(_libraries(device) + "".join(words) for words in choices)

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        if not device.present:
            yield from _refused(_PLANS, f"PyTorch needs a device of this machine, got {device.name}")
            return
        if problem.dtype.narrow:
            # On a CPU F.conv2d accepts int8, but its sums overflow.
            yield from _refused(_PLANS, f"PyTorch's own call has no {problem.y.dtype} sums of {problem.dtype}")
            return
        beyond = beyond_32_bits(problem) if device.kind == "cuda" else None
        if beyond is not None:
            yield from _refused(_PLANS, beyond)
            return
        if problem.dtype is DType.FP32 and device.kind == "cuda":
            for switch in ("on", "off"):
                own = torch_candidate(problem, (("tf32", switch),))
                yield Refusal(own.id, _WRONG_IN_TF32) if switch == "on" and _is_wrong_in_tf32(problem) else own
        else:
            fault = fault_of_pytorchs_call(problem) if device.kind == "cpu" else None
            own = torch_candidate(problem, cpu=device.kind == "cpu")
            yield own if fault is None else Refusal(own.id, f"PyTorch's call uses oneDNN, which {fault}")
        reason = why_not_fused(problem)
        if reason is not None:
            yield from _refused((name for name in _PLANS if name != "default"), reason)
            return
        yield from cudnn.offers(problem, device)
        yield from onednn.offers(problem, device)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        return _PLANS[candidate.algorithm](candidate)


def _is_wrong_in_tf32(problem: ConvProblem) -> bool:
    """Observed for input gradients on an H200 (cuDNN 9.19, engine 76)."""
    return problem.direction is Direction.BACKWARD_DATA and problem.has_idle_outputs


def _refused(names: Iterable[str], reason: str) -> Iterator[Refusal]:
    return (Refusal(f"torch/{name}", reason) for name in names)


def _libraries(device: DeviceFacts) -> str:
    cudnn: int | None = cudnn_version() if device.kind == "cuda" else None
    return f"torch {torch.__version__}" + (f", cudnn {cudnn}" if cudnn else "")


def _switches(device: DeviceFacts) -> tuple[tuple[str, bool], ...]:
    """The suffixes of a fingerprint for PyTorch's flags that change the library or algorithm of its call, and whether
    each applies now."""
    if device.kind != "cuda":
        return ((", no onednn", not flags.onednn_enabled()),)
    return (
        (", switched off", flags.against_cudnn() is not None),
        (", benchmark", torch.backends.cudnn.benchmark),
        (", deterministic", flags.deterministic()),
    )
