"""A target on the command line that is a model and an example of its input."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.cli.library_models import check_installed, library_model, names_library_model
from convwright.cli.targets import called, factory
from convwright.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor, nn

    from convwright.engine.capture.example import Subject

InputShape = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="SHAPE",
        help="The shape of the input, as 1,3,224,224, for timm:NAME, torchvision:NAME and functions that return a "
        "model alone. The shapes of several inputs are joined by +.",
        show_default=False,
    ),
]
_SHAPE = re.compile(r"[1-9]\d{0,8}([,x][1-9]\d{0,8})*")


def shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes that ``--input`` names.

    >>> shapes_of("1,3,224,224"), shapes_of("8x3x32x32+8x10")
    (((1, 3, 224, 224),), ((8, 3, 32, 32), (8, 10)))
    """
    shapes = ["".join(shape.split()) for shape in text.split("+")]
    if not all(map(_SHAPE.fullmatch, shapes)):
        raise BadInput(f"--input must be the shape of an input, for example 1,3,224,224, got {text!r}")
    return tuple(tuple(map(int, re.split("[,x]", shape))) for shape in shapes)


def made_by(target: str, shape: str | None, call: Callable[[], Any] | None = None) -> Any:
    """What ``target`` makes: a model, or a model and an example, whose input has the ``shape`` that is given.

    ``call`` calls the target's function, where it is loaded already.
    """
    shapes = None if shape is None else shapes_of(shape)
    if names_library_model(target):
        check_installed(target)
        if shapes is None:
            raise BadInput(f"{target!r} needs the shape of its input: add --input 1,3,224,224, or another shape")
        model = library_model(target)
        return model, _example(model, shapes)
    made = called(target, factory(target)) if call is None else call()
    if shapes is None:
        return made
    model = made[0] if isinstance(made, tuple) and made else made
    if not callable(model):
        raise BadInput(f"{target!r} must return a model, or (model, example), got {type(model).__name__}")
    return model, _example(model, shapes)


def subject_of(target: str, shape: str | None = None) -> Subject:
    """The model that ``target`` makes and an example of its input, which must be there."""
    from torch import nn

    from convwright.engine.capture.example import Subject

    made = made_by(target, shape)
    if isinstance(made, nn.Module):
        raise BadInput(
            f"{target!r} returns a model without an example: return (model, example), or give the shape of its input, "
            "as --input 1,3,224,224"
        )
    return Subject.made(made, by=target)


def model_and_example(
    target: str, dtype: str | None = None, device: str | None = None, *, shape: str | None = None
) -> tuple[nn.Module, tuple[Any, ...]]:
    """What the target's function returns, cast to ``dtype`` and moved to ``device``; the model is set to evaluate."""
    import torch

    from convwright.core.dtype import DType
    from convwright.measuring.hardware.machine import device_facts
    from convwright.tensors import torch_dtype

    place = None if device is None else device_facts(device)
    if place is not None and not place.present:
        raise BadInput(f"{device} is a device to plan for with --plan-only, which runs nothing: move to cpu or cuda")

    subject = subject_of(target, shape)
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
    if model.training:
        print("convwright: the model is in training mode, and is planned in evaluation mode", file=sys.stderr)
    return model.eval(), example


def _example(model: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
    from convwright.advising.shapes import random_input

    return tuple(random_input(model, shape) for shape in shapes)
