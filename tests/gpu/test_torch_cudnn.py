"""PyTorch's cuDNN operators on a GPU, under the error rule beside ``F.conv2d``."""

from __future__ import annotations

import pytest
import torch

from convwright.backends.registry import backend
from convwright.core.candidate import Candidate
from convwright.core.error_rule import error_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.trials.trial import Bench, Trial

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")

WINDOWS = [
    "mb2ic16ih14oc24kh3ph1",
    "g16mb2ic16ih15oc16kh3ph1sh2",
    "mb1ic8id6ih9oc8kd3kh3pd1ph1",
    "mb2ic16ih20oc8kh3ph2dh1",
]


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("epilogue", ["none", "bias+relu", "residual+bias+relu"])
@pytest.mark.parametrize("window", WINDOWS)
def test_no_worse_than_pytorch(window: str, epilogue: str, dtype: str, tag: str) -> None:
    problem, device = ConvProblem.parse(f"{window} dt:{dtype} tag:{tag} ep:{epilogue}"), device_facts("cuda")
    found = [c for c in backend("torch").candidates(problem, device, Policy()) if isinstance(c, Candidate)]
    bench, check = Bench(problem, device, Mode.FULL, seed=5), ErrorCheck(problem, "cuda", seed=5)
    errors = {c: check.errors(Trial(c, bench).run) for c in found}
    ours = [c for c in found if c.algorithm == "cudnn"]
    assert ours
    for candidate in ours:
        twin = next(c for c in found if c.algorithm == "default" and c.config == candidate.config)
        assert error_objection(problem, errors[candidate], errors[twin], Policy()) is None, candidate.id
