"""What finding a remembered choice costs the host, measured where it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from statistics import median
from time import perf_counter_ns

import torch

from convwright.measuring.company import Company
from convwright.ops.asking.request import Request
from convwright.ops.calls.form import CONV2D
from convwright.ops.calls.slots import Slot, Slots

_REPEATS = 20
# No look takes so long on a machine that is of use for a GPU.
LONG_LOOK_US = 50.0
# TorchScript knows functions by their ids, and would take another in the place of this one for a convolution.
_kept: list[object] = []


@lru_cache
@torch.no_grad()
def look_host_us(kind: str) -> float:
    """Host time between a call and the candidate that was chosen for it, among other layers.

    Takes some 5 ms, once per process. Its company stays on the CPU: on an H200 that gave 2.7 to 2.8 µs and company of
    the GPU 2.6 to 3.1, whose kernels would have to be loaded first, for 20 ms.
    """
    from convwright.ops.functional import convolution  # which by way of its decisions needs this

    form = replace(CONV2D, slots=Slots())
    looks = convolution(form)
    _kept.append(looks)
    x, w, y = (torch.zeros(shape, device=kind) for shape in ((1, 4, 4, 4), (4, 4, 3, 3), (1, 4, 2, 2)))
    form.slots.remember(w, (x, w), Slot((x, w), Request(True, 1, 0, 1, 1), lambda *operands: y))
    company = Company("cpu")

    def host_us(call: Callable[[], object]) -> float:
        taken_ns = []
        for _ in range(_REPEATS):
            company()
            begun_ns = perf_counter_ns()
            call()
            taken_ns.append(perf_counter_ns() - begun_ns)
        return median(taken_ns) / 1e3

    looking, nothing = host_us(partial(looks, x, w)), host_us(lambda: y)
    return max(looking - nothing, 0.0)
