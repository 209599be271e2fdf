"""Which stacks of dense layers have kernels of their own, for their outputs and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.triton.dense_layers.plan import DenseKernels, DenseLayers, Layers
from convwright.eager.asking import ambient
from convwright.errors import BackendError, BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import core_dtype
from convwright.tuning.session import session

_MOST_KNOWN = 64  # sizes of images
_known: dict[tuple[Layers, tuple[int, int, int], torch.dtype, torch.device], DenseLayers | None] = {}


def dense_layers(x: Tensor, dilations: tuple[int, ...], parameters: Sequence[Tensor]) -> DenseLayers | None:
    """The kernels for a batch of images, whose buffer lies in planes. None where there are none, and where algorithms
    of convolutions were asked for. The first call for a network waits for a compiler, a second or two."""
    if session().mode is Mode.OFF or ambient.current() is not None:
        return None
    count, inputs, height, width = x.shape
    layers = Layers(inputs, parameters[0].shape[0], dilations, parameters[-2].shape[0])
    is_usual = [tuple(w.shape) for w in parameters[:-2:2]] == layers.shapes
    if not (is_usual and all(tensor.is_contiguous() for tensor in parameters)):
        return None
    key = layers, (count, height, width), x.dtype, x.device
    if key not in _known:
        if x.is_cuda and torch_api.is_capturing():  # which nothing may be copied to the GPU for
            return None
        while len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)), None)
        _known[key] = _made(*key)
    return _known[key]


def _made(layers: Layers, images: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> DenseLayers | None:
    try:
        return DenseLayers(_kernels(layers, dtype, device), images)
    except (Refused, BadInput, BackendError, ImportError):
        return None


@lru_cache(maxsize=32)
def _kernels(layers: Layers, dtype: torch.dtype, device: torch.device) -> DenseKernels:
    return DenseKernels(layers, core_dtype(dtype), device_facts(device))
