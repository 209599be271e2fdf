"""Work fused after a convolution, y = activation(scale · conv + residual + bias), or into its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import one_of


class Activation(StrEnum):
    """The last element-wise function. GELU is the exact one, by the error function, as is PyTorch's default."""

    NONE = "none"
    RELU = "relu"
    SILU = "silu"
    GELU = "gelu"
    HARDSWISH = "hardswish"

    @property
    def slope(self) -> float:
        """The largest slope: the factor by which an error before it may grow."""
        return _SLOPE.get(self, 1.0)


# HardSwish's is at 3, where it has an edge; the others' largest derivatives are rounded up.
_SLOPE = {Activation.SILU: 1.0999, Activation.GELU: 1.129, Activation.HARDSWISH: 1.5}


@dataclass(frozen=True, slots=True)
class Epilogue(Record):
    """Of a forward convolution, in this order: multiply the sums by one factor per channel, add the residual, add the
    bias, apply the activation. With ``accumulate`` the result is added to the output's contents.

    A gradient has the epilogue of its forward convolution: before it is convolved, dy is multiplied by the activation's
    derivative, which gives the bias's gradient, and by the scale.

    >>> str(Epilogue(bias=True, activation=Activation.RELU))
    'bias+relu'
    """

    residual: bool = False
    bias: bool = False
    activation: Activation = Activation.NONE
    scale: bool = False
    accumulate: bool = False

    def __bool__(self) -> bool:
        return self != Epilogue()

    def __str__(self) -> str:
        activation = [str(self.activation)] * (self.activation is not Activation.NONE)
        flags = {name: [name] * getattr(self, name) for name in _FLAGS}
        return (
            "+".join((*flags["scale"], *flags["residual"], *flags["bias"], *activation, *flags["accumulate"])) or "none"
        )

    @classmethod
    def parse(cls, text: str) -> Epilogue:
        words = [word for word in text.split("+") if word != "none"]
        names = [word for word in words if word not in _FLAGS]
        if len(names) > 1 or len(set(words)) != len(words):
            raise BadInput(f"an epilogue is scale+residual+bias+activation+accumulate, each at most once, got {text!r}")
        if names and names[0] not in tuple(Activation):
            known = ", ".join((*_FLAGS, *Activation))
            raise BadInput(f"an epilogue is some of {known} with plus signs between, got {names[0]!r}")
        flags = {name: name in words for name in _FLAGS}
        return cls(activation=Activation(names[0]) if names else Activation.NONE, **flags)


_FLAGS = ("scale", "residual", "bias", "accumulate")


def activation_named(name: str | None) -> Activation:
    """The activation called ``name``; None means none."""
    return one_of(Activation, "activation", name or "none")
