"""The physical lower bounds of a candidate's time on a device."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Limits:
    """Lower bounds of the time in microseconds; None if the device's rate is unknown."""

    bytes_us: float | None
    arithmetic_us: float | None

    @property
    def limit_us(self) -> float | None:
        known = [bound for bound in (self.bytes_us, self.arithmetic_us) if bound is not None]
        return max(known) if known else None

    def share(self, time_us: float) -> float | None:
        """The limit divided by a time: 1 is perfect, more is a bug."""
        return self.limit_us / time_us if self.limit_us is not None else None


def limits(candidate: Candidate, device: DeviceFacts) -> Limits:
    """The bytes limit, valid for every candidate, and this candidate's arithmetic limit at its own peak rate.

    Copies made by a rewrite are not part of the limit, since another way may do without them. An algorithm that saves
    products has an arithmetic limit only if it states how many it computes.
    """
    bandwidth, leaf = device.bandwidth_bytes_per_us, candidate.leaf
    peak = None if leaf.saves_products and leaf.products is None else device.peak(candidate.arithmetic)
    return Limits(
        bytes_us=candidate.problem.bytes / bandwidth if bandwidth else None,
        arithmetic_us=flops(candidate) * candidate.arithmetic.products / peak if peak else None,
    )


def flops(candidate: Candidate) -> int:
    """Operations of the leaf in all of its runs; more than the problem's if a rewrite pads."""
    leaf = candidate.leaf
    each: int = leaf.problem.flops if leaf.products is None else 2 * leaf.products
    return candidate.runs * each


def too_large(problem: Problem, device: DeviceFacts) -> str | None:
    """Why a problem's operands do not fit on a device; None if they do, or if its memory size is unknown."""
    needed = sum(max(spec.nbytes, spec.span_bytes) for spec in problem.operands.values())
    if device.memory_bytes is None or needed <= device.memory_bytes:
        return None
    needed_gb, there_gb = needed / 1e9, device.memory_bytes / 1e9
    return f"its operands take {needed_gb:,.1f} GB, {device.name} has {there_gb:,.1f} GB of memory"


def beyond_32_bits(problem: Problem) -> str | None:
    """Why a convolution cannot run on a GPU: PyTorch passes larger numbers to cuDNN as negative ones, and Triton
    refuses them. None if it can."""
    if not isinstance(problem, ConvProblem):
        return None
    step = max(*problem.stride, *problem.dilation, *(side for pair in problem.padding for side in pair))
    return f"on a GPU, strides, dilations and padding are numbers of 32 bits, got {step:,}" if step >> 31 else None


def only_in_parts(problem: Problem, device: DeviceFacts) -> str | None:
    """``too_large`` for lists of candidates, since rewrites may split the problem."""
    reason = too_large(problem, device)
    return None if reason is None else f"whole it cannot run there: {reason}"
