"""What runs a plan on operands that lie where it does not take them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from convwright.backends.reference.backend import Reference
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.running import runner as runners
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning.listing import with_id

PROBLEM = ConvProblem.of((2, 4, 8, 8), (6, 4, 3, 3), padding=1, epilogue="residual+bias")


def astray(*shape: int) -> Tensor:
    """A tensor at an address that is a multiple of 4 bytes and not of 16."""
    found = torch.randn(torch.Size(shape).numel() + 1)[1:].view(shape)
    assert found.data_ptr() % 16 == 4
    return found


@pytest.mark.parametrize("which", range(5))
def test_a_plan_that_stays_gets_copies_of_what_lies_astray(which: int) -> None:
    candidate = with_id("reference/gemm", PROBLEM, device_facts("cpu"), Policy())
    assert candidate is not None
    plan, given = Reference().build(candidate, device_facts("cpu")), []

    def run(*operands: Tensor | None) -> Tensor:
        given.append([operand.data_ptr() % 16 for operand in operands if operand is not None])
        x, w, *rest = operands
        assert w is not None
        return plan(x, plan.prepare(w), *rest)

    shapes = (PROBLEM.x.shape, PROBLEM.w.shape, (6,), PROBLEM.y.shape, PROBLEM.y.shape)
    operands = [astray(*shape) if i == which else torch.randn(shape) for i, shape in enumerate(shapes)]
    x, w, bias, residual, out = operands
    checked = runners._aligned(run, plan, runners._with_copies(run, plan), packed=False)
    y = checked(x, w, bias, residual, out)
    assert y is out
    assert_close(y, F.conv2d(x, w, bias, padding=1) + residual)
    assert set(given[0]) == {0}
    assert len(given[0]) == 4  # the result is copied to where it belongs
