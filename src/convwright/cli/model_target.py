"""A target on the command line that is a model and an example of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from convwright.cli.targets import called, factory
from convwright.errors import BadInput

if TYPE_CHECKING:
    from torch import nn


def model_and_example(
    target: str, dtype: str | None = None, device: str | None = None
) -> tuple[nn.Module, tuple[Any, ...]]:
    """What the target's function returns, cast to ``dtype`` and moved to ``device``; the model is set to evaluate."""
    import torch

    from convwright.core.dtype import DType
    from convwright.engine.capture.example import Subject
    from convwright.measuring.hardware.machine import device_facts
    from convwright.tensors import torch_dtype

    place = None if device is None else device_facts(device)
    if place is not None and not place.present:
        raise BadInput(f"{device} is a device to plan for with --plan-only, which runs nothing: move to cpu or cuda")

    subject = Subject.made(called(target, factory(target)), by=target)
    model, example = subject.module, subject.args
    if model is None or subject.kwargs:
        raise BadInput(f"{target!r} must return an nn.Module and a tensor or a tuple of tensors")
    if dtype is not None:
        cast = torch_dtype(DType.parse(dtype))
        model = model.to(cast)
        example = tuple(
            each.to(cast) if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in example
        )
    if place is not None:
        model = model.to(place.torch_name)
        example = tuple(each.to(place.torch_name) if isinstance(each, torch.Tensor) else each for each in example)
    return model.eval(), example
