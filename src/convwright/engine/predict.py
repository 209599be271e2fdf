"""What one run of a model should take on a device, which need not be in this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.predictor import Predictor
from convwright.engine.buckets.buckets import resized, shapes_of
from convwright.engine.export.inputs import check_evaluates, inputs_of
from convwright.engine.planned_engine import NetworkPrediction
from convwright.engine.precision.lowering import Precision
from convwright.engine.predicting import planned_engine
from convwright.errors import BadInput
from convwright.naming import is_whole
from convwright.store.store import Store
from convwright.tuning.session import using


def predict(
    model: nn.Module,
    example: Any,
    *,
    device: str | DeviceFacts | None = None,
    batch: int | None = None,
    precision: Precision | str | None = None,
    policy: Policy | None = None,
    store: Store | Path | str | None = None,
    predictor: Predictor | None = None,
) -> NetworkPrediction:
    """What one run of the engine of a model should take on a device: the sum over the plan of
    ``optimize(…, plan_only=True)``. Nothing runs.

    ``batch`` replaces the first dimension of every input. ``predictor`` says how long candidates take that the store
    has no findings of.

    >>> import torch
    >>> model, x = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3), torch.nn.ReLU()).eval(), torch.ones(8, 64, 32, 32)
    >>> found = predict(model, x, device="h200", precision="fp16")
    >>> found.device, found.time_us.low < found.time_us.value < found.time_us.high
    ('NVIDIA H200', True)
    """
    inputs = with_batch(inputs_of(example), batch)
    check_evaluates(model)
    with using(store) as kept:
        return planned_engine(
            model, inputs, device, policy or Policy(), kept, precision=precision, predictor=predictor
        ).prediction


def with_batch(inputs: tuple[Any, ...], batch: int | None) -> tuple[Any, ...]:
    """The inputs of a model for another batch."""
    if batch is None:
        return inputs
    if not (is_whole(batch) and batch > 0):
        raise BadInput(f"`batch` must be a whole number above 0, or None, got {batch!r}")
    tensors, nesting = torch_api.flatten(inputs)
    return tuple(torch_api.unflatten(_resized(tensors, batch), nesting))


def _resized(tensors: Sequence[Tensor], batch: int) -> list[Tensor]:
    return [resized(tensor, shape) for tensor, shape in zip(tensors, shapes_of(batch, tensors), strict=True)]
