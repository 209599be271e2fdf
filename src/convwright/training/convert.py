"""A model whose convolution modules are computed by convwright, each with the algorithms that were chosen for it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from reprlib import repr as brief
from typing import TypeVar

from torch import nn

from convwright.core.direction import Direction
from convwright.core.policy import Policy, check_policy
from convwright.eager.asking.ambient import AUTO
from convwright.eager.asking.known_names import check_known
from convwright.engine.capture.example import check_complete
from convwright.errors import BadInput, IgnoredWarning
from convwright.naming import one_of
from convwright.torch_api import AnyConvolution
from convwright.training.converted import Converted, Wish, is_convertible, to_converted, to_original
from convwright.training.paths import fitting

Choices = Mapping[str, str | Mapping[str, str]]
Model = TypeVar("Model", bound=nn.Module)


def convert(
    model: Model, *, choices: Choices | None = None, policy: Policy | None = None, strict: bool = True
) -> Model:
    """Have every ``nn.Conv*`` and ``nn.ConvTranspose*`` of ``model`` computed by convwright, and give the model back.

    The model itself is changed: its layers keep their parameters, names, hooks and state. ``choices`` names the
    algorithms of layers by their paths, which may be patterns ("layer1.*"), the last that fits counts; either the
    algorithm of the call itself, or one for each direction. What is not named is chosen freely, within ``policy``.
    An algorithm that cannot compute a problem is an error at the call. With ``strict=False`` that problem is computed
    by what is known to be fastest, and nothing is searched.
    ``layer.choices`` says by what a layer is computed. A layer whose class has a forward of its own is left alone.
    ``revert`` takes everything back, as tools need it that go by the exact types of modules.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    >>> converted = convert(model, choices={"2": "reference/gemm"})
    >>> _ = converted(torch.ones(1, 3, 10, 10))
    >>> converted[2].choices["forward"]
    'reference/gemm'
    """
    check_policy(policy)
    _check_module(model)
    check_complete(model)
    if not isinstance(strict, bool):
        raise BadInput(f"`strict` must be True or False, got {brief(strict)}")
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, AnyConvolution)}
    wishes = _wishes(choices or {}, list(layers))
    if not layers:
        warnings.warn("`convert` changed nothing: the model has no convolution layer", IgnoredWarning, stacklevel=2)
    for name in wishes:
        if not is_convertible(layers[name]):
            kind = type(layers[name]).__name__
            raise BadInput(f"`choices` names {name!r}, which is a {kind} with a forward of its own")
    for name, layer in layers.items():
        if is_convertible(layer):
            to_converted(layer, wishes.get(name, Wish({}, None)).within(policy, strict=strict))
    return model


def revert(model: Model) -> Model:
    """Give every layer that ``convert`` has changed its own class again.

    >>> isinstance(revert(convert(nn.Conv2d(3, 8, 3))), Converted)
    False
    """
    _check_module(model)
    for layer in model.modules():
        if isinstance(layer, Converted):
            to_original(layer)
    return model


def _check_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise BadInput(f"`model` must be an nn.Module, got {type(model).__name__}")


def _wishes(choices: Choices, layers: list[str]) -> dict[str, Wish]:
    found: dict[str, Wish] = {}
    if not isinstance(choices, Mapping) or not all(isinstance(pattern, str) for pattern in choices):
        raise BadInput(f"`choices` must be a mapping from paths of layers to algorithms, got {brief(choices)}")
    for pattern, asked in choices.items():
        named = fitting(pattern, layers, argument="choices")
        found |= dict.fromkeys(named, Wish(_by_direction(pattern, asked), None))
    return found


def _by_direction(pattern: str, asked: object) -> dict[Direction | None, str]:
    """What is asked for in each direction; None stands for the direction of the call itself."""
    named: dict[Direction | None, str]
    if isinstance(asked, str):
        named = {None: asked}
    elif isinstance(asked, Mapping) and all(isinstance(algorithm, str) for algorithm in asked.values()):
        named = {one_of(Direction, "direction", direction): algorithm for direction, algorithm in asked.items()}
    else:
        raise BadInput(f"`choices[{pattern!r}]` must be an algorithm, or one for each direction, got {asked!r}")
    for algorithm in named.values():
        if algorithm != AUTO:
            check_known(algorithm, f"`choices[{pattern!r}]`")
    return named
