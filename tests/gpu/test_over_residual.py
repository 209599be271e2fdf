"""Outputs in the memory of the residual: an engine writes over a residual that no later step reads."""

from __future__ import annotations

import pytest
import torch

from backends.triton_interpreted.cases import Operands
from backends.triton_interpreted.over_residual_cases import PROBLEMS, candidates, computes_the_same_over_the_residual
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

LARGER = [
    "mb8ic64ih56oc256kh1 ep:residual+bias+relu tag:nhwc dt:fp16",
    "mb8ic512ih7oc2048kh1 ep:residual+bias+relu tag:nhwc dt:fp16",
    "mb8ic64ih56oc64kh3ph1 ep:residual+bias+relu tag:nhwc dt:fp16",
    "mb8ic128ih28oc128kh3ph1 ep:residual+bias+relu",
    "g96mb8ic96ih28oc96kh7ph3 ep:residual+bias tag:nhwc dt:bf16",
    "g96mb8ic96ih28oc96kh7ph3 ep:residual+bias dt:fp16",
]


@pytest.mark.parametrize("text", [*PROBLEMS, *LARGER])
def test_an_output_may_lie_where_the_residual_lies(text: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    given = Operands.of(problem, "cuda", integers=False)
    for candidate in candidates(problem, live, 2):
        for _ in range(5):  # whatever depends on the order of programs shows only now and then
            computes_the_same_over_the_residual(candidate, given, live)
