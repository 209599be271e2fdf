"""What our own kernels offer for the GPU at hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch

from backends.triton_interpreted.cases import listed
from convwright.backends.triton.gemm.algorithms import algorithms_to_be_named
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

_SEES_A_GPU = torch.cuda.is_available()
# Of what only Hopper computes.
ON_HOPPER = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _SEES_A_GPU, reason="needs a CUDA device, PyTorch sees none"),
    pytest.mark.skipif(
        _SEES_A_GPU and torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper's copy engine"
    ),
]


def candidates(kernel: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that is offered by one that serves ``problem``: it refuses nothing but what a policy has to name."""
    offers, named = listed(kernel, problem, device), {each.id for each in algorithms_to_be_named(kernel, problem.dtype)}
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found, offers
    assert found == [offer for offer in offers if offer.id not in named], offers
    return found


def by_turns(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All combinations but of the last, each with one of those: every kernel has to be compiled."""
    *others, last = options
    return [(*each, last[place % len(last)]) for place, each in enumerate(product(*others))]
