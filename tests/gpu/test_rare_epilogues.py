"""Epilogues that scale, accumulate, or belong to a gradient, on the GPU at hand."""

from __future__ import annotations

import pytest
import torch

import convwright as cw
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.machine import device_facts
from convwright.tuning import listing
from gpu.right import check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

SIZES = "mb4ic32ih28oc64kh3ph1"


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("direction", Direction)
def test_cudnn_adds_to_what_an_output_holds(direction: Direction, dtype: str) -> None:
    layout = "nchw" if dtype == "fp32" else "nhwc"
    problem = ConvProblem.parse(f"{SIZES} dir:{direction} ep:accumulate dt:{dtype} tag:{layout}")
    device = device_facts("cuda")
    classic = [
        candidate
        for candidate in listing.candidates(listing.direct(problem, device, Policy(max_workspace_bytes=1 << 30)))
        if candidate.backend == "cudnn" and "winograd" not in candidate.id and "fft" not in candidate.id
    ]
    assert classic
    for candidate in classic:
        check(candidate)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("direction", "epilogue"),
    [
        ("forward", "scale+residual+bias+silu+accumulate"),
        ("backward_data", "scale+relu+accumulate"),
        ("backward_weight", "scale+bias+gelu+accumulate"),
        ("backward_weight", "bias+hardswish"),
    ],
)
def test_what_stands_around_a_convolution(direction: str, epilogue: str, dtype: str) -> None:
    problem = ConvProblem.parse(f"{SIZES} dir:{direction} ep:{epilogue} dt:{dtype} tag:nhwc")
    device, policy = device_facts("cuda"), Policy()
    offers = [*listing.direct(problem, device, policy), *listing.rewritten(problem, device, policy)]
    found = [c for c in listing.candidates(offers) if listing.objection(c, policy) is None]
    assert {"torch", "rewrite"} == {candidate.backend for candidate in found}
    for candidate in found:
        if not candidate.leaf.saves_products:
            check(candidate)


def test_a_gradient_with_its_activation_is_searched() -> None:
    found = cw.find(f"{SIZES} dir:backward_weight ep:bias+relu dt:fp16 tag:nhwc", mode="quick")
    assert found.choice is not None
    assert found.choice.measurement is not None
