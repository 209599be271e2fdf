"""PyTorch's calls as the benchmarks time them on a live GPU."""

from __future__ import annotations

import pytest
import torch
from common import torch_calls

from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.clock import CudaGraphClock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]

PROBLEMS = (
    "mb4ic32ih28oc32kh3ph1",
    "mb4ic32ih28oc32kh3ph1 dt:fp16 tag:nhwc ep:bias+relu",
    "mb4ic32ih28oc32kh3ph1 dir:backward_data",
    "mb4ic32ih28oc32kh3ph1 dir:backward_weight",
)


@pytest.mark.parametrize("text", PROBLEMS)
def test_calls_with_the_flag_on_are_captured_like_those_with_it_off(text: str) -> None:
    """Those with the flag on are enqueued by another thread, which keeps their plans apart."""
    problem, clock = ConvProblem.parse(text), CudaGraphClock()
    given = operands(problem, Kind.NORMAL, "cuda")
    reference = sampled_reference(problem, given)
    with torch.no_grad():
        calls = torch_calls.calls(["default", "benchmark"], problem, given)
        for call in calls.values():
            assert errors_of(call(), reference)[0] < 2e-3
            assert clock.time_us(call, 3) > 0
    assert clock.fallbacks == []
    assert not torch.backends.cudnn.benchmark
