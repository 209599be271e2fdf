"""What stands between a call and the candidate that was chosen for it, and PyTorch's own call: their host's time,
measured where it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import cycle, islice
from statistics import median
from time import perf_counter_ns
from typing import NamedTuple

import torch
from torch import Tensor

from convwright.measuring.company import Company
from convwright.ops.asking.request import Request
from convwright.ops.calls.form import CONV2D
from convwright.ops.calls.slots import Slot, Slots

_LAYERS, _REPEATS = 8, 24
# No look takes so long on a machine that is of use for a GPU.
LONG_LOOK_US = 50.0


class HostCosts(NamedTuple):
    """Host times among other layers: of finding what was chosen, of adding a bias behind it, and of PyTorch's own call
    of a tiny convolution."""

    look_us: float
    bias_us: float
    own_us: float


@lru_cache
@torch.no_grad()
def host_costs(kind: str) -> HostCosts:
    """Takes some 50 ms, once per process, and where no fp32 was computed yet what cuDNN loads for it.

    As in a network, each call is that of another layer than the one before, and other layers run in between: a look at
    one layer, again and again, took an H200's host 2 µs, with kernels launched in between 5 to 7, and at many layers in
    turn another's, on which all took twice as long, 12.
    """
    from convwright.ops.enable import stand_in  # which by way of its decisions needs this

    form = replace(CONV2D, slots=Slots(), stands_in=True)
    found = stand_in(form)
    x, y, bias = (torch.zeros(shape, device=kind) for shape in ((1, 4, 4, 4), (1, 4, 2, 2), (4,)))
    layers = [_layer(kind) for _ in range(_LAYERS)]
    for w, request in layers:
        form.slots.remember(w, (x, w), Slot((x, w), request, lambda *operands: y))
    turns: dict[str, Callable[..., object]] = {
        "nothing": lambda w, *window: y,
        "look": lambda w, *window: found(x, w, None, *window),
        "own": lambda w, *window: form.own(x, w, None, *window),
        "bias": lambda w, *window: y.add_(bias.view(-1, 1, 1)),
    }
    company, taken_ns = Company(kind), {name: list[int]() for name in turns}
    with torch.autocast(kind, enabled=False):
        for w, request in islice(cycle(layers), _LAYERS + _REPEATS):
            for name, call in turns.items():
                run = partial(call, w, *form.window(request))
                company()
                begun_ns = perf_counter_ns()
                run()
                taken_ns[name].append(perf_counter_ns() - begun_ns)
    nothing, look, own, added = (median(each[_LAYERS:]) / 1e3 for each in taken_ns.values())
    return HostCosts(max(look - nothing, 0.0), max(added - nothing, 0.0), max(own - nothing, 0.1))


def _layer(kind: str) -> tuple[Tensor, Request]:
    """A weight, and what a layer gives along with it, which are no other layer's objects."""
    stride, padding, dilation = (tuple([each] * 2) for each in (1, 0, 1))
    return torch.zeros(4, 4, 3, 3, device=kind), Request(True, stride, padding, dilation, 1)
