"""What tests of emitted C share: operands, a candidate in C and in Python, and whether both give the same."""

from __future__ import annotations

import math
from ctypes import byref, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.graph import listing as graph
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit.literals import is_engine
from convwright.emit.one import emitted
from convwright.errors import BackendError, Refused
from convwright.tensors import empty
from emit.compiled import shared

ENGINES_TRIED = 4
# Between two runs of what is not deterministic, relative L2.
LARGEST_DIFFERENCE = {
    Arithmetic.FP64: 1e-13,
    Arithmetic.FP32: 1e-5,
    Arithmetic.TF32: 2e-3,
    Arithmetic.FP16_ACC32: 2e-3,
    Arithmetic.BF16_ACC32: 2e-2,
}


@dataclass
class Operands:
    """Everything that a plan is called with, from normal data, exactly as the problem's specs say."""

    problem: ConvProblem
    tensors: dict[Role, Tensor]

    @classmethod
    def of(cls, problem: ConvProblem, seed: int = 0) -> Operands:
        generator = torch.Generator("cuda").manual_seed(seed)
        made = {
            role: empty(spec, "cuda").copy_(torch.randn(spec.shape, device="cuda", generator=generator))
            for role, spec in problem.operands.items()
            if role is not problem.direction.output
        }
        return cls(problem, made)

    @property
    def multiplied(self) -> tuple[Tensor, Tensor]:
        first, second = self.problem.direction.operands
        return self.tensors[first], self.tensors[second]

    @property
    def added(self) -> tuple[Tensor | None, Tensor | None]:
        return self.tensors.get(Role.BIAS), self.tensors.get(Role.RESIDUAL)

    def out(self) -> Tensor:
        return empty(self.problem.output, "cuda").fill_(math.nan)


def scratch(nbytes: int) -> Tensor:
    """A workspace that is full of NaN."""
    return torch.full((nbytes,), 0xFF, dtype=torch.uint8, device="cuda")


def pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None or not tensor.numel() else tensor.data_ptr() for tensor in tensors]


def explained(library: Any, code: int) -> str:
    failure = library.conv_last_failure()
    return f"{library.conv_text(code).decode()}: {failure.call} {failure.status_name} {failure.said}"


class InC:
    """A candidate as emitted C, called on PyTorch's current stream."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, folder: Path) -> None:
        self.library: Any = shared(emitted(candidate, device, "conv", "by a test"), folder)
        self.plan = c_void_p()
        self.code = self.library.conv_create(byref(self.plan))
        self.workspace_bytes = self.library.conv_workspace_bytes(self.plan)

    def __call__(self, operands: Operands, out: Tensor, workspace: Tensor) -> Tensor:
        stream = torch.cuda.current_stream().cuda_stream
        given = pointers(*operands.multiplied, *operands.added, out, workspace)
        code = self.library.conv_run(self.plan, *given, stream)
        assert code == 0, explained(self.library, code)
        return out

    def destroy(self) -> None:
        torch.cuda.synchronize()
        self.library.conv_destroy(self.plan)


def in_python(plan: Plan, operands: Operands, out: Tensor, workspace: Tensor) -> Tensor:
    first, second = operands.multiplied
    packed = plan.prepare(second) if Role.W in operands.tensors else second
    return plan(first, packed, *operands.added, out, workspace)


def build(candidate: Candidate, device: DeviceFacts) -> Plan:
    return (graph if is_engine(candidate) else classic).build(candidate, device)


def built(candidate: Candidate, device: DeviceFacts) -> Plan | None:
    """None where cuDNN refuses, as it may when a plan is finalized."""
    try:
        return build(candidate, device)
    except (BackendError, Refused):
        return None


def candidates_of(text: str, device: DeviceFacts) -> list[Candidate]:
    """Every algorithm that serves, and the first engines that no compiler is needed for."""
    problem = ConvProblem.parse(text)
    offers = [*classic.candidates(problem, device, Policy()), *graph.candidates(problem, device, Policy())]
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    engines = [candidate for candidate in found if is_engine(candidate) and not candidate.compiles]
    return [*(candidate for candidate in found if not is_engine(candidate)), *engines[:ENGINES_TRIED]]


def check_same(candidate: Candidate, got: Tensor, expected: Tensor) -> None:
    """Bit for bit where the candidate is deterministic."""
    if candidate.deterministic:
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        return
    difference = (got.double() - expected.double()).norm() / expected.double().norm()
    assert difference.item() <= LARGEST_DIFFERENCE[candidate.arithmetic]
