"""Which stacks of dense layers have kernels of their own, for their outputs and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from convwright.backends.triton.dense_layers.plan import DenseLayers, Layers
from convwright.eager.asking import ambient
from convwright.errors import BackendError, BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import core_dtype
from convwright.tuning.session import session


def dense_layers(x: Tensor, dilations: tuple[int, ...], parameters: Sequence[Tensor]) -> DenseLayers | None:
    """The kernels for a batch of images, whose buffer lies in planes; None where there are none, and where algorithms
    of convolutions were asked for. The first call for a size waits for a compiler, a second or two."""
    if session().mode is Mode.OFF or ambient.current() is not None:
        return None
    count, inputs, height, width = x.shape
    layers = Layers(inputs, parameters[0].shape[0], dilations, parameters[-2].shape[0])
    is_usual = [tuple(w.shape) for w in parameters[:-2:2]] == layers.shapes
    if not (is_usual and all(tensor.is_contiguous() for tensor in parameters)):
        return None
    return _made(layers, (count, height, width), x.dtype, x.device)


@lru_cache(maxsize=32)
def _made(layers: Layers, images: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> DenseLayers | None:
    try:
        return DenseLayers(layers, images, core_dtype(dtype), device_facts(device))
    except (Refused, BadInput, BackendError, ImportError):
        return None
