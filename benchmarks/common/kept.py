"""Models that go to PyTorch's own convolutions whatever is enabled."""

from __future__ import annotations

import copy
from types import FunctionType, ModuleType
from typing import Any

from torch import nn
from torch.nn import functional as F

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

# Imported before anything is enabled, so that these are PyTorch's.
own = ModuleType("own")
vars(own).update({name: getattr(F, name) for name in _CONVOLUTIONS}, pad=F.pad)


def _with_own(method: FunctionType) -> FunctionType:
    """The same code, where ``F`` is ``own``."""
    names = method.__globals__ | {"F": own}
    return FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)


def _kept_class(layer: type[nn.Module]) -> Any:
    methods = {name: _with_own(vars(layer)[name]) for name in ("forward", "_conv_forward") if name in vars(layer)}
    return type(f"Kept{layer.__name__}", (layer,), methods)


_KEPT: dict[type[nn.Module], Any] = {layer: _kept_class(layer) for layer in _LAYERS}


def kept(module: nn.Module) -> nn.Module:
    """A copy whose convolutions are PyTorch's layers line by line, with functions that nobody replaces."""
    made = copy.deepcopy(module)
    for each in made.modules():
        if type(each) in _KEPT:
            each.__class__ = _KEPT[type(each)]
    return made
