"""First looks on a GPU tell the device's time from the host's."""

from __future__ import annotations

from math import inf

import pytest
import torch

from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.clock import CudaGraphClock, queued_us
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.trials.quick_timing import QuickTimings
from convwright.tuning.trials.search_input import NO_HOOKS
from convwright.tuning.trials.trial import Bench

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


def test_what_is_queued_is_timed_without_its_launches() -> None:
    x = torch.zeros(1 << 10, device="cuda")

    def work() -> None:
        for _ in range(20):
            x.add_(1)

    work()
    torch.cuda.synchronize()
    alone_us = min(CudaGraphClock().time_us(work, 1) for _ in range(3))
    assert min(queued_us(work, 2000.0) for _ in range(5)) < 2.0 * alone_us


@pytest.mark.parametrize("name", ["torch/default", "cudnn/implicit-gemm"])
def test_a_look_tells_the_device_from_the_host(name: str) -> None:
    problem, device = ConvProblem.parse("mb2ic32ih14oc32kh3ph1"), device_facts("cuda")
    policy = Policy(objective=Objective.DEVICE_TIME)
    listed = listing.candidates(listing.direct(problem, device, policy))
    candidate = next(each for each in listed if each.id.startswith(name))
    looks = QuickTimings(Bench(problem, device, Mode.QUICK, seed=1), Budget(inf), policy, NO_HOOKS.trying)
    look = looks.at(candidate)
    assert look is not None
    call = look.trial.call()
    clock = CudaGraphClock()
    alone_us = min(clock.time_us(call, 10) for _ in range(3)) / 10
    assert 0.5 * alone_us < look.look_us < 2.0 * alone_us + 5.0
    assert look.host_us > 5.0
    assert looks.best_us == looks.cost_us(candidate) == pytest.approx(look.look_us + look.packing_us)
