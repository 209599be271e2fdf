"""The kernel for other sizes of images in Triton's interpreter, held against float64. Its own process runs this."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings

pytest.importorskip("triton")

from backends.bound_right import objection_to
from convwright.backends.torch_native.resizing import TorchResize
from convwright.backends.triton.resize.backend import TritonResize
from convwright.backends.triton.resize.offers import Tile
from convwright.core.binding import bind
from convwright.core.candidate import Candidate
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.measuring.checking.data import ERROR_KINDS, Kind, operands
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from kind_space import resize_problems

BACKEND, CPU = TritonResize(), device_facts("cpu")


def candidates(problem: Any) -> list[Candidate]:
    return [each for each in BACKEND.candidates(problem, CPU, Policy()) if isinstance(each, Candidate)]


@settings(max_examples=15)
@given(resize_problems((DType.FP32, DType.FP16, DType.BF16), most=6).filter(lambda each: each.y.numel <= 300))
def test_images_that_lie_anyhow(problem: ResizeProblem) -> None:
    listed = candidates(problem)
    if not listed:
        assert "bf16" in problem.key
        assert "linear" in problem.key
    for candidate in listed[:1]:
        small = replace(candidate, config=Tile(4, 2, 1).config)  # tiles that the ends cut off
        for each in (candidate, small):
            assert objection_to(BACKEND.build(each, CPU), [Kind.NORMAL, Kind.NAN]) is None, each.id


@pytest.mark.parametrize(
    "text",
    [
        "resize nearest mb2ic3ih5 oh9",
        "resize nearest mb2ic3ih5 oh8 scale:1.7 dt:bf16 tag:nhwc",
        "resize linear mb2ic3ih5iw6 oh9ow6",
        "resize linear mb2ic4ih5iw6 oh9ow14 tag:nhwc align:corners dt:fp16",
        "resize linear mb2ic4ih5iw6 oh3ow11 tag:x=nhwc,y=nchw",
        "resize linear mb2ic2id3ih4iw5 od5oh6ow7 tag:nhwc",
        "resize linear ic3iw7 ow12 scale:1.8",
        "resize linear mb2ic4ih5 oh9 tag:x=600/1/60/8,y=1024/1/100/8",
    ],
)
def test_every_kind_of_data(text: str) -> None:
    for candidate in candidates(parse(text)):
        assert objection_to(BACKEND.build(candidate, CPU), (*ERROR_KINDS, Kind.INTEGERS)) is None, candidate.id


@pytest.mark.parametrize("text", ["resize linear mb2ic3ih13 oh31", "resize linear mb2ic3ih13 oh7 tag:nhwc scale:.55"])
def test_it_errs_no_more_than_pytorch(text: str) -> None:
    problem = parse(text)
    assert isinstance(problem, ResizeProblem)
    (own,) = TorchResize().candidates(problem, CPU, Policy())
    assert isinstance(own, Candidate)
    errors = ErrorCheck(problem, "cpu").errors
    base, ours = TorchResize().build(own, CPU), BACKEND.build(candidates(problem)[0], CPU)
    found, torchs = (errors(lambda given, plan=plan: bind(plan, given)()) for plan in (ours, base))  # type: ignore[misc]
    assert error_objection(problem, found, torchs, Policy()) is None


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
def test_the_nearest_pixels_are_pytorchs(tag: str) -> None:
    for size, out, scale in ((30, 41, "1.37"), (100, 33, ""), (7, 29, ""), (41, 16, "0.4")):
        problem = parse(f"resize nearest ic2ih{size} oh{out} tag:{tag}" + f" scale:{scale}" * bool(scale))
        assert isinstance(problem, ResizeProblem)
        x = operands(problem, Kind.NORMAL, "cpu")["x"]
        (own,) = TorchResize().candidates(problem, CPU, Policy())
        assert isinstance(own, Candidate)
        right, found = TorchResize().build(own, CPU)(x), BACKEND.build(candidates(problem)[0], CPU)
        assert torch.equal(bind(found, {"x": x})(), right)
