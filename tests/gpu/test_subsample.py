"""Strided convolutions of which only what is read is left, on the GPU at hand."""

from __future__ import annotations

import pytest
import torch

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.tuning import listing
from convwright.tuning.asked import named
from convwright.tuning.find import resolved
from gpu.right import check, check_beside

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
@pytest.mark.parametrize(
    "text",
    [
        "mb4ic64ih28oc128kh1sh2",
        "mb4ic64ih28oc128kh1sh2 dt:fp16 tag:nhwc",
        "mb2ic32ih7oc48kh1sh2ph3 tag:nhwc",
        "mb2ic32id6ih14oc48kd1kh1sd2sh2 dt:bf16",
        "mb2ic32iw120oc32kw5pw8sw2dw3",
    ],
)
def test_what_is_left_is_right(text: str, direction: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dir:{direction}")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        offers = listing.candidates(listing.rewritten(problem, live, resolved(Policy(), problem, live)))
        found = [each for each in offers if each.algorithm == "subsample"]
        assert found
        for candidate in found:
            # Nobody explains the errors of PyTorch's own call and of cuDNN's where they multiply less often.
            if not candidate.leaf.saves_products:
                check(candidate)


def test_the_gradient_of_a_projection_errs_as_pytorchs_does(live: DeviceFacts) -> None:
    problem = ConvProblem.parse("mb16ic128ih28oc512kh1sh2 dir:backward_data")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        policy = resolved(Policy(), problem, live)
        left = named("subsample(2, reference/gemm)", problem, live, policy)
        check_beside(named("torch/default", problem, live, policy), [left])
