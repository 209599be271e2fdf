"""What a chosen candidate costs among other work, beyond what the timer saw: in its loop everything is at hand.

In a network other layers run in between, and Python that has just run something else takes longer. PyTorch's own call
suffers less from that than a plan of several steps does, by an amount that decides where a convolution is short.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from statistics import median
from time import perf_counter_ns

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.ops.describe import problem_of
from convwright.ops.form import CONV2D
from convwright.ops.runner import runner
from convwright.tuning.listing import build
from convwright.tuning.session import named

_ROUNDS = 60
# In a small ResNet such plans lost 12 to 20 µs on a CPU where the few layers here make them lose 6.
_IN_A_NETWORK = 2.0


@lru_cache
def surroundings_us(device: DeviceFacts) -> float:
    """How much more a plan of several small steps loses among other layers than PyTorch's own call; at least 0.

    Takes some 30 ms, once per process.
    """
    x, w = _zeros(1, 8, 8, 8), _zeros(8, 8, 1, 1)
    problem = problem_of(x, w)
    plan = build(named("relayout(nhwc, reference/gemm)", problem, device, Policy()), device)
    packed, scratch = plan.prepare(w), torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cpu")
    run = runner(plan, (x, w, None, None), TorchPlan(torch_candidate(problem)), weights_constant=False)

    def by_itself() -> None:
        plan.prepare(w)
        plan(x, packed, None, None, None, scratch)

    ours = _median_us(lambda: run(x, w), _other_layers()) - _median_us(by_itself, lambda: None)
    own = partial(CONV2D.own, x, w)
    torchs = _median_us(own, _other_layers()) - _median_us(own, lambda: None)
    return max(_IN_A_NETWORK * (ours - torchs), 0.0)


def _other_layers() -> Callable[[], object]:
    y, w, ones = _zeros(1, 8, 16, 16), _zeros(8, 8, 3, 3), _zeros(8) + 1

    def layers() -> Tensor:  # F.conv2d may be ours at the moment
        h = F.batch_norm(CONV2D.own(y, w, None, 1, 1), ones, ones, ones, ones)
        return CONV2D.own(F.max_pool2d(F.relu(h), 3, 2, 1), w) + 1

    return layers


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


@torch.no_grad()
def _median_us(call: Callable[[], object], before: Callable[[], object]) -> float:
    taken = []
    for _ in range(_ROUNDS):
        before()
        begun = perf_counter_ns()
        call()
        taken.append(perf_counter_ns() - begun)
    return median(taken) / 1e3
