"""Epilogues that scale, accumulate, or belong to a gradient, on the GPU at hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import convwright as cw
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning import listing
from gpu.own_kernels import by_turns
from gpu.right import check, relative

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


FUSED = [
    "g32mb4ic32ih28oc32kh3ph1 dir:backward_data ep:relu",
    "g32mb4ic32ih29oc32kh5ph2 dir:backward_data ep:silu tag:nhwc",
    "mb2ic50ih64oc1kh3ph5dh4 dir:backward_data ep:hardswish",
    "g16mb2ic16iw300oc16kw4pw3 dir:backward_data ep:gelu",
    "g32mb4ic32ih28oc32kh3ph1 dir:backward_weight ep:bias+relu",
    "g32mb4ic32ih29oc32kh5ph2sh2 dir:backward_weight ep:bias+silu tag:nhwc",
    "mb2ic50ih64oc1kh3ph5dh4 dir:backward_weight ep:bias",
    "g16mb2ic16iw300oc32kw4pw3 dir:backward_weight ep:gelu",
    "g16mb2ic16id6ih19oc16kd3kh3pd1ph1 dir:backward_weight ep:bias+relu",
]


@pytest.mark.parametrize(("text", "dtype"), by_turns(FUSED, ["fp32", "fp16", "bf16"]))
def test_our_kernels_fuse_what_stands_ahead_of_a_gradient(text: str, dtype: str) -> None:
    problem, device = ConvProblem.parse(f"{text} dt:{dtype}"), device_facts("cuda")
    offers = listing.candidates(listing.direct(problem, device, Policy()))
    found = [candidate for candidate in offers if candidate.backend == "triton"]
    assert found
    for candidate in found:
        check(candidate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("channels", "size"), [(1, 512), (64, 56)])
def test_gradients_of_a_function_are_right_whatever_is_chosen(channels: int, size: int, dtype: torch.dtype) -> None:
    x, w, b = (
        torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
        for shape in ((2, channels, size, size), (channels, 1, 3, 3), (channels,))
    )
    dy = torch.randn(2, channels, size, size, device="cuda", dtype=dtype)
    for _ in range(3):
        y = cw.conv2d(x, w, b, padding=1, groups=channels, activation="relu")
        own = F.conv2d(*(each.double() for each in (x, w, b)), padding=1, groups=channels)
        expected = torch.autograd.grad(own, [x, w, b], torch.where(y > 0, dy, 0).double())
        for got, exact in zip(torch.autograd.grad(y, [x, w, b], dy), expected, strict=True):
            assert relative(got, exact.double()) < (1e-5 if dtype is torch.float32 else 2e-3)


def test_a_gradient_with_its_activation_is_searched() -> None:
    found = cw.find(f"{SIZES} dir:backward_weight ep:bias+relu dt:fp16 tag:nhwc", mode="quick")
    assert found.choice is not None
    assert found.choice.measurement is not None
