"""Weights packed by kernels on a live GPU, bit for bit what PyTorch's operators make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.triton_interpreted.packing_cases import (
    LAID,
    TURNED,
    WINOGRAD,
    rows_of,
    same,
    transformed,
    turned_rows_of,
    weight_of,
)
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]

BACKEND = TritonKernels()
LARGE = ["mb1ic512ih7oc512kh3ph1", "mb1ic2048ih7oc512kh1", "mb1ic3ih224oc64kh7sh2ph3 tag:nhwc"]
CASES: list[tuple[str, str, Callable[[Candidate, Tensor], Tensor]]] = [
    *((text, "implicit-gemm", rows_of) for text in (*LAID, *LARGE)),
    *((text, "input-gradient", turned_rows_of) for text in TURNED),
    *((text, "winograd", transformed) for text in (*WINOGRAD, "mb32ic256ih14oc256kh3ph1")),
]


@pytest.mark.parametrize(("text", "algorithm", "expected"), CASES, ids=[f"{name} {text}" for text, name, _ in CASES])
def test_a_packed_weight(
    text: str, algorithm: str, expected: Callable[[Candidate, Tensor], Tensor], live: DeviceFacts
) -> None:
    problem = ConvProblem.parse(text)
    offers = (each for each in BACKEND.candidates(problem, live, Policy()) if isinstance(each, Candidate))
    packing = {each.algorithm: each for each in offers if each.algorithm.startswith(algorithm)}
    packing = {name: each for name, each in packing.items() if name.endswith("packed") or algorithm == "winograd"}
    if not packing:
        pytest.skip("the kernel is not offered for this")
    weight = weight_of(problem, special=True, device="cuda")
    # At an address that is aligned to one number only.
    astray = torch.empty(weight.numel() + 1, device="cuda")[1:].as_strided(weight.shape, weight.stride()).copy_(weight)
    for candidate in packing.values():
        plan: Any = BACKEND.build(candidate, live)
        for given in (weight, astray):
            assert same(plan.prepare(given).cpu(), expected(candidate, weight.cpu())), candidate.id
