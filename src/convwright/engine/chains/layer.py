"""One convolution of a network as its user wrote it, and how a model of PyTorch's becomes a sequence of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from convwright import torch_api
from convwright.core.epilogue import Activation, activation_named
from convwright.core.problem import IntOrTuple
from convwright.core.window import Padding
from convwright.errors import BadInput

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, slots=True, eq=False)
class ConvLayer:
    """``activation(conv(x, weight) + bias)``, with the arguments of ``torch.nn.functional.conv2d`` and its siblings."""

    weight: Tensor
    bias: Tensor | None = None
    stride: IntOrTuple = 1
    padding: Padding = 0
    dilation: IntOrTuple = 1
    groups: int = 1
    activation: str | None = None

    def __post_init__(self) -> None:
        activation_named(self.activation)
        if self.bias is not None and tuple(self.bias.shape) != tuple(self.weight.shape[:1]):
            raise BadInput(
                f"`bias` must have shape ({self.weight.shape[0]},), one entry per output channel, "
                f"got {tuple(self.bias.shape)}"
            )


def from_sequential(model: nn.Sequential) -> tuple[ConvLayer, ...]:
    """The layers of an ``nn.Sequential`` of convolutions, each with the ReLU that may follow it.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> [str(layer.activation) for layer in from_sequential(model)]
    ['relu', 'None']
    """
    layers: list[ConvLayer] = []
    for name, module in _flattened(model):
        _check_plain(name, module)
        if isinstance(module, _CONVOLUTIONS):
            layers.append(_layer(name, module))
        elif not layers:
            raise BadInput(f"a ReLU must follow a convolution, but `{name}` comes first")
        else:
            layers[-1] = replace(layers[-1], activation=Activation.RELU)
    return tuple(layers)


def _flattened(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every module in the order in which it runs, out of all nested sequences."""
    # Not named_children(), which leaves out a module that stands in the sequence a second time.
    for name, module in torch_api.children_of(model).items():
        if module is None:
            continue
        if type(module) is nn.Sequential:
            yield from _flattened(module, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", module


def _check_plain(name: str, module: nn.Module) -> None:
    if type(module) not in (*_CONVOLUTIONS, nn.ReLU):
        raise BadInput(f"a chain is made of convolutions and ReLUs, but `{name}` is a {type(module).__name__}")
    # Weight normalisation and pruning make the weight in such a hook, at every call.
    if torch_api.has_hooks(module):
        raise BadInput(f"`{name}` has hooks, which a chain would not call; remove them first")


def _layer(name: str, conv: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> ConvLayer:
    if conv.padding_mode != "zeros":
        raise BadInput(f"`{name}` must pad with zeros, got padding_mode={conv.padding_mode!r}")
    return ConvLayer(conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups)
