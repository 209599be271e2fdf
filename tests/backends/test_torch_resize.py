"""PyTorch's own operators for other sizes of images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F

from backends.bound_right import objection_to
from convwright.backends.registry import backend
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import DType
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.hardware.machine import device_facts
from kind_space import resize_problems

CPU = device_facts("cpu")


def plan_of(problem: ResizeProblem) -> Any:
    member = backend("torch", "resize")
    (candidate,) = member.candidates(problem, CPU, Policy())
    assert isinstance(candidate, Candidate)
    assert candidate.id == "torch/default"
    return member.build(candidate, CPU)


@settings(max_examples=60)
@given(resize_problems((DType.FP64, DType.FP32)))
def test_it_computes_right(problem: ResizeProblem) -> None:
    assert objection_to(plan_of(problem)) is None


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("resize nearest mb2ic5ih7 oh9", {"size": 9}),
        ("resize nearest mb2ic5ih7 oh11 scale:1.65", {"scale_factor": 1.65}),
        ("resize linear mb2ic5iw7 ow11 scale:1.65", {"scale_factor": 1.65, "mode": "linear"}),
        ("resize linear mb2ic5ih7 oh4 tag:nhwc", {"size": 4, "mode": "bilinear"}),
        ("resize linear mb2ic3id5 od9 align:corners", {"size": 9, "mode": "trilinear", "align_corners": True}),
    ],
)
def test_it_is_what_interpolate_calls(text: str, given: dict[str, Any], dtype: str) -> None:
    """Bit for bit, also where PyTorch rounds weights to a short dtype, as on a CPU."""
    problem = parse(f"{text} dt:{dtype}")
    assert isinstance(problem, ResizeProblem)
    x = operands(problem, Kind.NORMAL, "cpu")["x"]
    assert torch.equal(plan_of(problem)(x), F.interpolate(x, **given))


@pytest.mark.parametrize(
    ("tag", "writes"),
    [
        ("nchw", True),
        ("nhwc", True),
        ("x=nchw,y=nhwc", False),
        ("x=nhwc,y=nchw", False),
        ("x=nhwc,y=1024/1/128/16", False),
        ("x=600/1/100/20,y=nhwc", True),
    ],
)
def test_it_writes_where_it_is_told_if_pytorch_would_lay_its_result_so(tag: str, writes: bool) -> None:
    problem = parse(f"resize linear mb2ic8ih5 oh8 tag:{tag}")
    assert isinstance(problem, ResizeProblem)
    plan = plan_of(problem)
    assert plan.writes_out is writes
    assert objection_to(plan) is None


def test_nothing_is_made_of_no_image() -> None:
    for how in ("nearest", "linear"):
        problem = parse(f"resize {how} mb0ic8ih5 oh8")
        assert isinstance(problem, ResizeProblem)
        assert plan_of(problem)(torch.empty(0, 8, 5, 5)).shape == (0, 8, 8, 8)


def test_without_a_device_it_says_so() -> None:
    (refusal,) = backend("torch", "resize").candidates(parse("resize nearest ic8ih4 oh8"), profile("h200"), Policy())
    assert isinstance(refusal, Refusal)
    assert "needs a device of this machine" in refusal.reason
