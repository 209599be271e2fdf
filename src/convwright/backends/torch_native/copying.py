"""Copies by PyTorch's own functions: the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from convwright.backends.torch_native.whole import torch_version, why_not_asked
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import plain_arithmetic
from convwright.core.kinds.copy import CopyProblem
from convwright.core.policy import Policy
from convwright.tensors import allocator


class TorchCopy:
    """``torch/default``: ``copy_`` into the output, which is first filled with zeros if the problem pads."""

    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return torch_version()

    def candidates(self, problem: CopyProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = why_not_asked(device)
        if reason is not None:
            yield Refusal("torch/default", reason)
            return
        yield Candidate(problem, "torch", "default", (), plain_arithmetic(problem.dtype), 0, True, Source.RULE)

    def build(self, candidate: Candidate, device: DeviceFacts) -> TorchCopyPlan:
        return TorchCopyPlan(candidate, device)


class TorchCopyPlan(RolePlan):
    """Copies between views of both tensors that have the size of the copied part."""

    def __init__(self, candidate: Candidate, device: DeviceFacts) -> None:
        self.candidate = candidate
        problem: CopyProblem = candidate.problem
        self._new, self._pads = allocator(problem.y, torch.device(device.torch_name or "cpu")), problem.pads
        self._read = _cuts(problem.read_from, problem.kept, problem.x.shape)
        self._written = _cuts(problem.written_from, problem.kept, problem.y.shape)

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        x, out = _within(operands["x"], self._read), operands.get("y")
        if out is None:
            return lambda: self._into(self._new(), x)()
        return self._into(out, x)

    def _into(self, out: Tensor, x: Tensor) -> Callable[[], Tensor]:
        inside, pads = _within(out, self._written), self._pads

        def call() -> Tensor:
            if pads:
                out.zero_()
            inside.copy_(x)
            return out

        return call


def _cuts(first: Sequence[int], sizes: Sequence[int], of: Sequence[int]) -> list[tuple[int, int, int]]:
    """Dimension, start and size of each cut that makes this part of a tensor."""
    return [(dim, first[dim], size) for dim, size in enumerate(sizes) if size != of[dim]]


def _within(tensor: Tensor, cuts: Iterable[tuple[int, int, int]]) -> Tensor:
    for cut in cuts:
        tensor = tensor.narrow(*cut)
    return tensor
