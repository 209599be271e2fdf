"""Mixed-scale dense networks, as Pelt and Sethian describe them (PNAS 115, 2018)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import cycle, islice
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.eager.running.pytorchs_own import foreign
from convwright.errors import BadInput
from convwright.training.dense_stack import DenseStack, concatenated

_CONVOLUTIONS: dict[int, Any] = {2: nn.Conv2d, 3: nn.Conv3d}
_PADDING_MODES = ("zeros", "reflect")


class MSDNet(nn.Module):
    """A mixed-scale dense network: each layer convolves the input and the results of all layers before it.

    There are ``depth`` layers of ``width`` channels with 3x3 filters (3x3x3 with ``spatial_dims=3``), ReLU, and
    ``dilations`` that repeat; the last layer is a 1x1 convolution of everything, without activation. The output has
    the size of the input, outside of which there are zeros or, with ``padding_mode="reflect"``, its mirror image.

    All layers write into one buffer: nothing is concatenated, and the backward pass keeps that buffer alone. Compiled,
    exported, transformed by torch.func, or with layers that were replaced or have hooks, it computes the same in
    PyTorch's operators. ``layers`` and ``last`` are PyTorch's convolutions with their weights and biases.

    >>> model = MSDNet(1, 2, depth=5)
    >>> model(torch.ones(1, 1, 32, 32)).shape
    torch.Size([1, 2, 32, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        depth: int = 100,
        width: int = 1,
        dilations: Iterable[int] = range(1, 11),
        *,
        spatial_dims: int = 2,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_positive("in_channels", in_channels)
        _check_positive("out_channels", out_channels)
        _check_positive("depth", depth)
        _check_positive("width", width)
        dilations = tuple(dilations)
        for dilation in dilations or (0,):
            _check_positive("dilations", dilation)
        if spatial_dims not in _CONVOLUTIONS:
            raise BadInput(f"`spatial_dims` must be 2 or 3, got {spatial_dims!r}")
        if padding_mode not in _PADDING_MODES:
            raise BadInput(f"`padding_mode` must be 'zeros' or 'reflect', got {padding_mode!r}")
        convolution = partial(_CONVOLUTIONS[spatial_dims], device=device, dtype=dtype)
        self._stack = DenseStack(spatial_dims, tuple(islice(cycle(dilations), depth)), padding_mode == "reflect")
        self.layers = nn.ModuleList(
            convolution(
                in_channels + width * number, width, 3, padding=dilation, dilation=dilation, padding_mode=padding_mode
            )
            for number, dilation in enumerate(self._stack.dilations)
        )
        self.last = convolution(in_channels + width * depth, out_channels, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights anew: normal ones of a variance that suits the whole network, and biases of zero."""
        *layers, last = self._all_layers()
        connections = layers[-1].in_channels * 3**self._stack.rank + last.out_channels
        for layer in layers:
            nn.init.normal_(layer.weight, std=sqrt(2 / connections))
            nn.init.zeros_(layer.bias)
        nn.init.xavier_normal_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output for a batch of images of any size, or for one image without a batch."""
        if torch.compiler.is_compiling() or self._needs_modules():
            return self._concatenated(x)
        parameters = [tensor for layer in self._all_layers() for tensor in (layer.weight, layer.bias)]
        if foreign(x, *parameters) is not None:
            return self._concatenated(x)
        self._check(x)
        if x.dim() == self._stack.rank + 1:
            return self._stack(x.unsqueeze(0), parameters).squeeze(0)
        return self._stack(x, parameters)

    def _concatenated(self, x: Tensor) -> Tensor:
        return concatenated(x, self.layers, self.last, -self._stack.rank - 1)

    def _needs_modules(self) -> bool:
        """Whether layers do more than convolve, or someone watches them."""
        kind = _CONVOLUTIONS[self._stack.rank]
        return any(type(layer) is not kind or torch_api.hooks(layer) for layer in self._all_layers())

    def _all_layers(self) -> list[Any]:
        return [*self.layers, self.last]

    def _check(self, x: Tensor) -> None:
        rank, channels = self._stack.rank, self._all_layers()[0].in_channels
        if x.dim() not in (rank + 1, rank + 2) or x.shape[-rank - 1] != channels:
            axes = ", ".join("DHW"[3 - rank :])
            raise BadInput(
                f"the input must be (N, {channels}, {axes}) or ({channels}, {axes}), got shape {tuple(x.shape)}"
            )


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        numbers = "whole numbers" if name == "dilations" else "a whole number"
        raise BadInput(f"`{name}` must be {numbers} above 0, got {value!r}")
