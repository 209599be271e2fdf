"""Why an algorithm of cuDNN's cannot serve, asked on a live GPU."""

from __future__ import annotations

import pytest
import torch

import convwright as cw

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

PROBLEM = "mb8ic64ih28oc64kh3ph1"


def test_a_classic_algorithm_is_asked_as_the_list_asks_it() -> None:
    strided = "mb8ic64ih28oc64kh3sh2ph1"
    listed = {refusal.id: refusal.reason for refusal in cw.find(strided, device="cuda", mode="heuristic").refusals}
    reason = cw.why(strided, "cudnn/winograd-nonfused", "cuda")
    assert not reason.serves
    assert reason.sentence.partition(";")[0].startswith(listed["cudnn/winograd-nonfused"].partition(" (")[0])


def test_what_serves_says_with_what_workspace() -> None:
    reason = cw.why(PROBLEM, "cudnn/winograd-nonfused", "cuda")
    assert reason.serves
    assert "bytes of workspace" in reason.sentence


def test_engines_are_asked_by_the_live_handle() -> None:
    assert cw.why(PROBLEM, "cudnn/engine-0", "cuda").serves
    reason = cw.why(PROBLEM, "cudnn/engine-9999", "cuda")
    assert not reason.serves
    assert reason.causes or "names no condition" in reason.sentence
