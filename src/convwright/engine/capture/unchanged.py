"""Run a user's model, and restore the model and its inputs afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from convwright.torch_api import overlaps_itself

_cuda: Any = torch.cuda
_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextmanager
def unchanged(model: nn.Module | None) -> Iterator[None]:
    """Restore afterwards what a call of ``model`` may change: random state, parameters, buffers, attributes.

    Batch norm counts in its buffers, spectral norm iterates in them, an embedding may scale its own weight, and some
    modules remember their inputs. Tensors inside a module's own lists and dicts are not restored.
    """
    state = None if model is None else _State(model)
    devices = range(_cuda.device_count()) if _cuda.is_initialized() else ()
    python = random.getstate()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            if state is not None:
                state.restore()


@contextmanager
def unwritten(given: Iterable[Tensor]) -> Iterator[None]:
    """Restore afterwards what a model writes to its inputs. The model gets the caller's own tensors: copies might have
    other strides, and so be another problem."""
    before = [(tensor, tensor.detach().clone()) for tensor in given if _is_writable(tensor)]
    try:
        yield
    finally:
        with torch.inference_mode(False), torch.no_grad():
            for tensor, values in before:
                if not _same(tensor, values):
                    _write(tensor, values)


def _is_writable(tensor: Tensor) -> bool:
    """Whether a tensor is PyTorch's own, has values, and is not expanded."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.is_nested or tensor.layout is not torch.strided:
        return False
    return tensor.device.type != "meta" and not overlaps_itself(tensor)


class _State:
    def __init__(self, model: nn.Module) -> None:
        self._tensors = [(tensor, tensor.detach().clone(), tensor.grad) for tensor in _tensors(model)]
        # A scripted module keeps everything except its tensors in C++, where a run changes nothing.
        plain = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
        self._attributes = [(module, _attributes(module)) for module in plain]

    def restore(self) -> None:
        for module, attributes in self._attributes:
            _put_back(module, attributes)
        with torch.inference_mode(False), torch.no_grad():
            for tensor, values, grad in self._tensors:
                if not _same(tensor, values):
                    _write(tensor, values)
                if tensor.grad is not grad:
                    tensor.grad = grad


def _tensors(model: nn.Module) -> list[Tensor]:
    """Parameters and buffers, without those on "meta", which hold no values."""
    return [t for t in (*model.parameters(), *model.buffers()) if t.device.type != "meta"]


def _attributes(module: nn.Module) -> dict[str, Any]:
    """A module's attributes, with copies of the three dicts in which PyTorch registers members."""
    kept = dict(vars(module))
    return kept | {name: dict(kept[name]) for name in _REGISTRIES if name in kept}


def _put_back(module: nn.Module, kept: dict[str, Any]) -> None:
    present = vars(module)
    for name in present.keys() - kept.keys():
        del present[name]
    for name, value in kept.items():
        if name in _REGISTRIES:
            registry = present[name]
            registry.clear()
            registry.update(value)
        elif present.get(name) is not value:
            present[name] = value


def _same(tensor: Tensor, values: Tensor) -> bool:
    """Whether values are equal. A buffer with NaN counts as changed and is written again, which does no harm."""
    return torch.equal(tensor.detach(), values)


def _write(tensor: Tensor, values: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()):
        tensor.detach().copy_(values)
