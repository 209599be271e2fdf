"""PyTorch's own cuDNN operators: what they are offered for. That they compute it right is for tests/gpu to say."""

from __future__ import annotations

import pytest

from convwright.backends.torch_native import cudnn as torch_cudnn
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.measuring.machine import device_facts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic4iw9oc4kw3", "got 1"),
        ("ic4ih9oc4kh3 dir:backward_data", "not backward_data"),
        ("ic4ih9oh9oc4kh2ph0", "(0, 1)"),
        ("ic4ih9oc4kh3 flip:1", "flip=1"),
        ("ic4ih9oc4kh3 ep:bias", "got bias"),
        ("ic4ih9oc4kh3 ep:bias+silu", "got bias+silu"),
        ("ic4ih9oc4kh3 dt:fp64 ep:bias+relu", "not in fp64"),
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


def test_fp32_stands_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_cudnn.torch.backends.cudnn, "is_available", lambda: True)
    from convwright.core.profiles import profile

    found = [
        offer
        for offer in torch_cudnn.offers(ConvProblem.parse("ic4ih9oc4kh3"), profile("h200"))
        if isinstance(offer, Candidate)
    ]
    assert [candidate.arithmetic for candidate in found] == [Arithmetic.TF32, Arithmetic.FP32]
