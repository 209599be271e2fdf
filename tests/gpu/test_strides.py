"""Results of GPU candidates have PyTorch's strides, along single elements, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.asking.describe import problem_of
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning import listing

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 16, 12, 12), (1, 16, 3, 3), {"padding": 1}),
    ((2, 1, 12, 12), (8, 1, 3, 3), {"padding": 1}),
    ((2, 16, 12, 12), (16, 16, 1, 1), {}),
    ((2, 16, 12, 12), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
]


def of_each_family(problem: ConvProblem, direction: Direction) -> list[str]:
    """The first that each algorithm of each backend offers in ``direction``."""
    offers = listing.direct(problem.asking(direction), device_facts("cuda"), Policy())
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    return list({(each.backend, each.algorithm): each.id for each in reversed(found)}.values())


def laid(shape: tuple[int, ...], memory_format: torch.memory_format) -> Tensor:
    made = torch.randn(shape, device="cuda", dtype=torch.float16).contiguous(memory_format=memory_format)
    return made.requires_grad_()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("x_shape", "w_shape", "window"), CASES)
@pytest.mark.parametrize("direction", list(Direction), ids=str)
def test_strides(
    direction: Direction,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    window: dict[str, Any],
    memory_format: torch.memory_format,
) -> None:
    x, w = laid(x_shape, memory_format), laid(w_shape, memory_format)
    expected = F.conv2d(x, w, **window)
    wanted = torch.autograd.grad(expected.sum(), (x, w))
    named = of_each_family(problem_of(x, w, **window), direction)
    assert len(named) > 1
    for algorithm in named:
        with cw.algorithms(strict=True, **{direction.value: algorithm}):
            y = cw.conv2d(x, w, **window)
            dx, dw = torch.autograd.grad(y.sum(), (x, w))
        assert y.stride() == expected.stride(), algorithm
        lie_as_operands = (dx.stride(), dw.stride()) == (x.stride(), w.stride())
        assert lie_as_operands or (dx.stride(), dw.stride()) == (wanted[0].stride(), wanted[1].stride()), algorithm
        assert_close(y, expected, rtol=1e-2, atol=1e-1)
        assert_close((dx, dw), wanted, rtol=1e-2, atol=1.0)
