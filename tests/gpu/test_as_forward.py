"""Gradients of inputs by kernels for the forward direction, on the GPU at hand."""

from __future__ import annotations

import pytest
import torch

import convwright as cw
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.rewrites import rewrite
from convwright.tuning import listing
from convwright.tuning.asked import named
from convwright.tuning.find import resolved
from gpu.own_kernels import candidates
from gpu.right import check, check_beside

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]


@pytest.mark.parametrize(
    "text",
    [
        "mb4ic32ih28oc64kh3ph1 dir:backward_data tag:nhwc",
        "mb4ic32ih28oc64kh3ph1 dir:backward_data",
        "mb2ic32ih28oc64kh5ph2dh1 dir:backward_data dt:fp16 tag:nhwc",
        "mb2ic16ih28oc32kh3sh2ph1 dir:backward_data dt:fp16 tag:nhwc",
    ],
)
def test_what_is_turned_around_is_right(text: str) -> None:
    problem, device = ConvProblem.parse(text), device_facts("cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        policy = resolved(Policy(), problem, device)
        offers = listing.candidates(listing.rewritten(problem, device, policy))
    turned = [candidate for candidate in offers if "as-forward(" in candidate.id]
    assert any(candidate.leaf.backend == "triton" for candidate in turned)
    for candidate in turned:
        # Nobody explains the errors of PyTorch's own call and of cuDNN's where they multiply less often.
        if not candidate.leaf.saves_products:
            # Folding fills a filter up with taps of 0, and a NaN times 0 is one.
            check(candidate, Policy(finite_inputs="space-to-depth(" in candidate.id))


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_our_own_that_saves_products_keeps_the_error_rule(layout: str, live: DeviceFacts) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    problem = ConvProblem.parse(f"mb64ic256ih14oc256kh3ph1 dir:backward_data tag:{layout}")
    turn = rewrite("as-forward")
    turned = [turn.wrap(problem, (), leaf) for leaf in candidates("winograd", turn.inner(problem, ()), live)]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_beside(named("torch/default", problem, live, resolved(Policy(), problem, live)), turned)


def test_a_gradient_in_fp32_is_computed_by_it_where_tf32_is_off() -> None:
    x = torch.randn(8, 64, 56, 56, device="cuda").to(memory_format=torch.channels_last).requires_grad_()
    w = torch.randn(64, 64, 3, 3, device="cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        name = next(
            candidate.id
            for candidate in listing.candidates(
                listing.rewritten(
                    cw.problem(x, w, padding=1, direction="backward_data"), device_facts("cuda"), Policy()
                )
            )
            if candidate.id.startswith("as-forward(triton/staged-gemm-3xfp16")
        )
        with cw.algorithms(backward_data=name):
            cw.conv2d(x, w, padding=1).square().sum().backward()
    exact = x.detach().double().requires_grad_()
    torch.nn.functional.conv2d(exact, w.double(), padding=1).square().sum().backward()
    assert x.grad is not None
    assert exact.grad is not None
    assert (x.grad.double() - exact.grad).norm() / exact.grad.norm() < 1e-5
