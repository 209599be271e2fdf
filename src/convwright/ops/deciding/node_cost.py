"""What a Python autograd node costs the host, measured where it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from statistics import median
from timeit import Timer

import torch
from torch import Tensor

from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.ops.asking.describe import problem_of
from convwright.ops.asking.request import Request
from convwright.ops.calls.form import CONV2D
from convwright.ops.gradients.autograd import Training

_REPEATS = 12
_CALLS = 20


@lru_cache
def node_host_us(kind: str) -> tuple[float, float]:
    """Host time of a tiny convolution, forward and backward: through our node, and as PyTorch's own.

    Both compute with PyTorch's kernels, so what differs is the node. Takes some 20 ms, once per process. They are timed
    by turns, since a machine that becomes slower in between would say that a node costs less than nothing.
    """
    x, w = (torch.zeros(shape, device=kind, requires_grad=True) for shape in ((1, 4, 4, 4), (4, 4, 3, 3)))
    dy, problem = torch.zeros(1, 4, 2, 2, device=kind), problem_of(x, w)
    request = Request(True, 1, 0, 1, 1)
    node = Training(problem, problem.y, CONV2D, request, TorchPlan(torch_candidate(problem)), None, None)

    def timer_of(forward: Callable[..., Tensor]) -> Timer:
        return Timer(lambda: torch.autograd.grad(forward(x, w, None), (x, w), dy))

    with torch.enable_grad(), _among_ourselves(kind):
        timers = timer_of(node), timer_of(CONV2D.own)
        rounds = [[timer.timeit(_CALLS) / _CALLS * 1e6 for timer in timers] for _ in range(_REPEATS)]
    without_us = median(own for _, own in rounds)
    return without_us + max(median(with_node - own for with_node, own in rounds), 0.0), without_us


@contextmanager
def _among_ourselves(kind: str) -> Iterator[None]:
    """Inside, nothing is cast, and a caller's hooks for saved tensors, by which a checkpoint counts them, see none."""
    with ExitStack() as around:
        around.enter_context(torch.autocast(kind, enabled=False))
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            around.enter_context(torch.autograd.graph.saved_tensors_hooks(_itself, _itself))
        yield


def _itself(tensor: Tensor) -> Tensor:
    return tensor
