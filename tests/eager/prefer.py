"""Makes the session choose a given algorithm for every direction, as if it were far faster than PyTorch's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from convwright.backends.reference.gemm import GemmPlan
from convwright.core.finding import Interval
from convwright.core.tensor_spec import Layout
from convwright.tuning.session import Answer, Session

TORCH, GEMM, RELAYOUT = "torch/default", "reference/gemm", "relayout(nhwc, reference/gemm)"
BOTH = pytest.mark.parametrize("algorithm", [TORCH, GEMM])


def prefer(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    own = Session.answer

    def answer(
        self: Session, problem: Any, device: Any, policy: Any, asked: str | None, eager: Any, **more: bool
    ) -> Answer:
        # What is channels last already has no rewrite into it.
        dense = "relayout(nhwc" in algorithm and problem == problem.in_layout(Layout.NHWC)
        choice = own(self, problem, device, policy, asked or (GEMM if dense else algorithm), eager, **more).eager
        far = replace(choice, device_us=Interval(1.0, 1.0, 1.0), torch_device_us=Interval(1e6, 1e6, 1e6))
        return Answer(far, far)

    monkeypatch.setattr(Session, "answer", answer)


def count_calls(monkeypatch: pytest.MonkeyPatch, method: str = "__call__") -> list[str]:
    """Grows by one direction's name with each call of a method of ``reference/gemm``'s plan."""
    called: list[str] = []
    own = getattr(GemmPlan, method)

    def counted(self: GemmPlan, *operands: Tensor | None) -> Tensor:
        called.append(str(self.problem.direction))
        result: Tensor = own(self, *operands)
        return result

    monkeypatch.setattr(GemmPlan, method, counted)
    return called


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return made.requires_grad_(grad)


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)
