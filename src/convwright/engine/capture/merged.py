"""A convolution module together with the batch norm and the activation after it, for one kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from convwright import torch_api
from convwright.core.epilogue import Activation
from convwright.engine.capture.layers import LayerCall
from convwright.engine.capture.trails import BATCH_NORM, Follower

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation.RELU, nn.SiLU: Activation.SILU, nn.GELU: Activation.GELU, nn.Hardswish: Activation.HARDSWISH,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """``activation(norm(conv(x)))``; norm and activation may be missing."""

    conv: Any
    norm: Any = None
    activation: nn.Module | None = None

    @property
    def behind(self) -> tuple[nn.Module, ...]:
        """The modules that become redundant."""
        return tuple(module for module in (self.norm, self.activation) if module is not None)

    @property
    def kind(self) -> Activation:
        return Activation.NONE if self.activation is None else ACTIVATIONS[type(self.activation)]

    def own(self, y: Tensor) -> Tensor:
        """Apply PyTorch's own modules to the convolution's output."""
        for module in self.behind:
            y = module.forward(y if module is self.norm else y.clone())  # an activation may work in place
        return y

    def weight(self) -> Tensor:
        """The convolution's weight in fp64, times the scale of the batch norm."""
        weight: Tensor = self.conv.weight.detach().double()
        return weight if self.norm is None else weight * self._factors().view(-1, *[1] * (weight.dim() - 1))

    def bias(self) -> Tensor | None:
        """The bias of each channel in fp64; None if there is none."""
        bias: Tensor | None = None if self.conv.bias is None else self.conv.bias.detach().double()
        if self.norm is None:
            return bias
        mean: Tensor = self.norm.running_mean.double()
        scaled = (-mean if bias is None else bias - mean) * self._factors()
        shift = self.norm.bias
        return scaled if shift is None else scaled + shift.detach().double()

    def _factors(self) -> Tensor:
        norm = self.norm
        factors: Tensor = (norm.running_var.double() + norm.eps).rsqrt()
        return factors if norm.weight is None else factors * norm.weight.detach().double()


def merged(
    conv: nn.Module, calls: Iterable[LayerCall], modules: Mapping[str, nn.Module], counts: Mapping[str, int]
) -> Merged:
    """``conv`` with the modules that follow it in all of its ``calls``.

    A following module is included if it computes what PyTorch's own module does and follows only this convolution;
    ``counts``, calls by path, must agree.
    """
    seen = tuple(calls)
    times = sum(call.calls for call in seen)
    common = _common([call.follows for call in seen])

    def taken(position: int, kinds: Collection[type[nn.Module]]) -> nn.Module | None:
        if position >= len(common):
            return None
        path = common[position].module
        module = modules.get(path)
        alone = module is not None and counts.get(path) == times and not torch_api.hooks(module)
        return module if alone and type(module) in kinds else None

    norm = taken(0, NORMS) if common and common[0].op == BATCH_NORM else None
    if norm is not None and getattr(norm, "running_mean", None) is None:
        return Merged(conv)
    activation = taken(0 if norm is None else 1, ACTIVATIONS)
    if isinstance(activation, nn.GELU) and activation.approximate != "none":
        activation = None
    return Merged(conv, norm, activation)


def _common(follows: list[tuple[Follower, ...]]) -> tuple[Follower, ...]:
    """The longest common beginning."""
    shortest = min(follows, key=len, default=())
    same = 0
    while same < len(shortest) and all(each[same] == shortest[same] for each in follows):
        same += 1
    return shortest[:same]
