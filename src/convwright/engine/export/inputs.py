"""Checks of a model and of the example of its input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.errors import BadInput


def inputs_of(example: Any) -> tuple[Any, ...]:
    """The arguments of a call of the model: ``example`` is a tensor, or a tuple of arguments."""
    inputs = example if isinstance(example, tuple) else (example,)
    if not (tensors := torch_api.flatten(inputs)[0]) or not all(isinstance(each, Tensor) for each in tensors):
        raise BadInput("`example` must be a tensor, or a tuple of the model's arguments, made of tensors")
    if any(each.layout is not torch.strided for each in tensors):
        raise BadInput("`example` must be made of dense tensors, got a sparse one")
    return inputs


def check_evaluates(model: nn.Module) -> None:
    """Refuse a model in training mode."""
    if model.training:
        raise BadInput("the model is in training mode: call model.eval() first")
