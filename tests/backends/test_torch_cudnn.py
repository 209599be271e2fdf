"""PyTorch's own cuDNN operators: what they are offered for. That they compute it right is for tests/gpu to say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.backends.torch_native import cudnn as torch_cudnn
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.eager.running.runner import runner
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.ranges import Ranged


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic4iw9oc4kw3", "got 1"),
        ("ic4ih9oc4kh3 dir:backward_data", "got backward_data"),
        ("ic4ih9oh9oc4kh2ph0", "(0, 1)"),
        ("ic4ih9oc4kh3 flip:1", "flip=1"),
        ("ic4ih9oc4kh3 ep:bias", "got bias"),
        ("ic4ih9oc4kh3 ep:bias+silu", "got bias+silu"),
        ("ic4ih9oc4kh3 dt:fp64 ep:bias+relu", "got fp64"),
        ("ic4ih9oc4kh3 tag:x=nchw,w=nchw,y=nhwc", "got nchw, nchw, nhwc"),
    ],
)
def test_a_refusal_names_the_value(text: str, words: str) -> None:
    reason = torch_cudnn.refusal_reason(ConvProblem.parse(text))
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize(
    "text", ["ic4ih9oc4kh3", "ic4ih9oc4kh3 dt:fp64", "g4ic4ih9oc4kh3 tag:nhwc", "ic4ih9oc4kh3 ep:residual+bias+relu"]
)
def test_what_it_serves(text: str) -> None:
    assert torch_cudnn.refusal_reason(ConvProblem.parse(text)) is None


def test_it_says_nothing_where_there_is_no_gpu() -> None:
    assert not list(torch_cudnn.offers(ConvProblem.parse("ic4ih9oc4kh3"), device_facts("cpu")))


def test_it_is_refused_where_cudnn_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    with torch.backends.cudnn.flags(enabled=False):
        (offer,) = torch_cudnn.offers(ConvProblem.parse("ic8ih9oc8kh3"), profile("h200"))
    assert offer == Refusal("torch/cudnn", "torch.backends.cudnn.enabled says that cuDNN is switched off")


def test_fp32_stands_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_cudnn.torch.backends.cudnn, "is_available", lambda: True)
    found = [
        offer
        for offer in torch_cudnn.offers(ConvProblem.parse("ic4ih9oc4kh3"), profile("h200"))
        if isinstance(offer, Candidate)
    ]
    assert [candidate.arithmetic for candidate in found] == [Arithmetic.TF32, Arithmetic.FP32]


@pytest.mark.parametrize(
    ("text", "links_us"),
    [
        ("g8mb2ic8ih9oc8kh3 dt:fp16", 2e6), ("g8mb2ic8ih9oc16kh3 dt:bf16", 2e6), ("g8mb2ic8ih9oc8kh3", 0.0),
        ("g4mb2ic8ih9oc8kh3 dt:fp16", 0.0), ("ic1ih9oc8kh3 dt:fp16", 0.0),
    ],
)  # fmt: skip
def test_what_is_loaded_for_depthwise_layers_is_told(
    text: str, links_us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_cudnn.torch.backends.cudnn, "is_available", lambda: True)
    for offer in torch_cudnn.offers(ConvProblem.parse(text), profile("h200")):
        assert isinstance(offer, Candidate)
        assert offer.links_us == links_us


def test_where_nothing_is_fused_a_call_goes_straight_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself or as a plan, and into memory that is given."""
    asked: list[tuple[object, ...]] = []

    def cudnn_convolution(x: Tensor, w: Tensor, *window: object) -> Tensor:
        asked.append(window)
        return F.conv2d(x, w, padding=1)

    monkeypatch.setattr(torch_cudnn._torch, "cudnn_convolution", cudnn_convolution)
    x, w = torch.randn(1, 4, 9, 9), torch.randn(4, 4, 3, 3)
    problem = ConvProblem.of(x.shape, w.shape, padding=1)
    plan = torch_cudnn.plan(Candidate(problem, "torch", "cudnn", (), Arithmetic.FP32, 0, None, Source.RULE))
    out, expected = torch.empty(1, 4, 9, 9), F.conv2d(x, w, padding=1)
    for call in (plan, plan.bare):
        assert torch.equal(call(x, w, None, None, None), expected)
        assert call(x, w, None, None, out.zero_()) is out
        assert torch.equal(out, expected)
    assert set(asked) == {((1, 1), (1, 1), (1, 1), 1, False, False, False)}


def test_eager_calls_go_the_short_way() -> None:
    """What a search has timed with all that stands around it is not what runs."""
    x, w = torch.zeros(1, 4, 9, 9), torch.zeros(4, 4, 3, 3)
    problem = ConvProblem.of(x.shape, w.shape, padding=1)
    plan = torch_cudnn.plan(Candidate(problem, "torch", "cudnn", (), Arithmetic.FP32, 0, None, Source.RULE))
    fallback: Any = None
    assert runner(plan, (x, w, None, None), plan, weights_constant=True, stays=False, fallback=fallback) is plan.bare
    ranged: Any = Ranged(plan)
    assert runner(ranged, (x, w, None, None), plan, weights_constant=True, stays=False, fallback=fallback) is ranged
