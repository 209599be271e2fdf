"""``reference/gemm`` in the arithmetic of its label, on a live GPU, whatever PyTorch's flags allow."""

from __future__ import annotations

import pytest
import torch

from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.error import measure_errors
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.trials.trial import Bench, Trial
from matmul_precision import matmul_precision

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]


@pytest.mark.parametrize("loosened", [False, True])
@pytest.mark.parametrize("tag", ["", " tag:nhwc"])
@pytest.mark.parametrize("direction", Direction)
def test_tf32_is_tf32_and_fp32_is_fp32(direction: Direction, tag: str, loosened: bool) -> None:
    problem = ConvProblem.parse(f"mb1ic256ih14oc128kh1{tag}").asking(direction)
    facts = device_facts("cuda")
    found = {c.id: c for c in listing.candidates(listing.direct(problem, facts, Policy()))}
    precision, errors = "high" if loosened else "highest", {}
    with matmul_precision(precision):
        for name in ("reference/gemm", "reference/gemm[tf32=on]"):
            trial = Trial(found[name], Bench(problem, facts, Mode.QUICK, seed=1))
            (errors[name],) = measure_errors(trial.run, problem, "cuda", ["normal"])
        assert torch.get_float32_matmul_precision() == precision
    assert errors["reference/gemm"].relative_l2 < 2e-6
    assert 5e-5 < errors["reference/gemm[tf32=on]"].relative_l2 < 2e-3
