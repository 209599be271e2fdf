"""A convolution module that computes in int8, for inference."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convwright import torch_api
from convwright.core.epilogue import Activation
from convwright.core.policy import Policy
from convwright.eager.asking.autocast import autocasting, lowered_dtype
from convwright.eager.running.pytorchs_own import COMPUTED_ON, PLAIN, is_transformed
from convwright.engine.capture.merged import Merged
from convwright.errors import BadInput
from convwright.quantizing.int8_calls import OUTPUTS, Int8Calls, Int8Operands
from convwright.quantizing.int8_numbers import LARGEST, scale_up_to, weight_in_int8
from convwright.uncompiled import uncompiled

# Of PyTorch's convolution modules.
_LACKING = ("weight", "_conv_forward", "transposed", "output_padding")


class Int8Conv(nn.Module):
    """``activation(scale · (x8 ∗ weight_int8) + bias)``, where ``x8`` is the input divided by ``input_scale``, rounded
    and clipped to ±127.

    It replaces an ``nn.Conv…`` and has the same input and output. Its state is ``weight_int8``; in fp32 one ``scale``
    for each output channel, which includes ``input_scale``; ``input_scale`` itself; and ``bias``, which may be None.
    ``half()`` and similar methods do not change these. The output has the dtype of the input.
    """

    weight_int8: Tensor
    scale: Tensor
    input_scale: Tensor
    bias: Tensor | None

    def __init__(self, merged: Merged, limit: float, policy: Policy | None = None, path: str = "") -> None:
        super().__init__()
        conv = merged.conv
        self.in_channels, self.out_channels, self.kernel_size = conv.in_channels, conv.out_channels, conv.kernel_size
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation
        self.groups, self.padding_mode = conv.groups, conv.padding_mode
        self.activation: Activation = merged.kind
        self._sides = torch_api.padded_sides(conv)
        weight, bias, device = merged.weight(), merged.bias(), conv.weight.device
        whole, weight_scale = weight_in_int8(weight)
        input_scale = scale_up_to(limit).to(device)
        self.register_buffer("weight_int8", whole)
        self.register_buffer("scale", weight_scale.double().mul(input_scale).float())
        self.register_buffer("input_scale", input_scale)
        self.register_buffer("bias", None if bias is None else bias.float())
        window = {
            "stride": conv.stride, "padding": conv.padding if self.padding_mode == "zeros" else 0,
            "dilation": conv.dilation, "groups": conv.groups,
        }  # fmt: skip
        self.path = path
        self._calls = Int8Calls(window, self.activation, policy)
        self._seen: tuple[Any, ...] | None = None
        self.eval()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            if name not in _LACKING:
                raise
            kept = f"keep=[{self.path!r}]" if self.path else "keep=[…]"
            raise AttributeError(
                f"{self.path or 'a convolution'} computes in int8 and has no `{name}`, which the model reads: "
                f"`{kept}` leaves it as it is"
            ) from error

    @property
    def limit(self) -> float:
        """Inputs of a larger magnitude are clipped to it."""
        return LARGEST * float(self.input_scale)

    @property
    def choices(self) -> dict[str, str]:
        """The id of the candidate for an input like the last one; empty before the first call."""
        if self._seen is None:
            return {}
        shape, strides, held, device, dtype = self._seen
        x = torch.empty_strided(shape, strides, dtype=held, device=device)
        return {"forward": self._calls.choice(x, self._operands(), dtype).candidate.id}

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as PyTorch's
        """The result in the dtype of ``input``, or in the dtype that autocast uses for convolutions."""
        return _computed(self, input)

    def _compute(self, x: Tensor) -> Tensor:
        self._check_device(x)
        lowered = autocasting(x)
        dtype = lowered_dtype(x) if lowered else x.dtype
        if dtype not in OUTPUTS:
            known = ", ".join(map(str, OUTPUTS))
            raise BadInput(f"an int8 layer takes an input of {known}, got {dtype}")
        if self.padding_mode != "zeros":
            x = F.pad(x, self._sides, mode=self.padding_mode)
        batch = x if x.dim() == self.weight_int8.dim() else x.unsqueeze(0)
        self._seen = (batch.shape, batch.stride(), batch.dtype, batch.device, dtype)
        with torch.autocast(x.device.type, enabled=False) if lowered else nullcontext():
            y = self._calls(batch, self._operands(), dtype)
        return y if batch is x else y.squeeze(0)

    def extra_repr(self) -> str:
        """The parameters in ``repr``."""
        said = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        usual = {"padding": (0,) * len(self.stride), "dilation": (1,) * len(self.stride), "groups": 1}
        usual |= {"padding_mode": "zeros", "activation": Activation.NONE}
        for name, value in usual.items():
            if getattr(self, name) != value:
                said += f", {name}={getattr(self, name)!s}"
        return said + (", bias=False" if self.bias is None else "")

    def _operands(self) -> Int8Operands:
        return Int8Operands(self.weight_int8, self.scale, self.input_scale, self.bias)

    def _check_device(self, x: Tensor) -> None:
        here = self.weight_int8.device
        if here.type not in COMPUTED_ON:
            raise BadInput(f"an int8 layer computes on {' and '.join(COMPUTED_ON)}, got one on {here}")
        if x.device != here:
            raise BadInput(f"`input` must be on {here} like the weight, got one on {x.device}")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the state, but never cast it: the scales would lose their calibrated values."""
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            moved = self._buffers[name]
            if moved is not None and moved.dtype is not buffer.dtype:
                self._buffers[name] = buffer.to(moved.device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles leave out prepared calls, which belong to this process and its device."""
        calls = Int8Calls(self._calls.window, self.activation, self._calls.policy)
        return {**self.__dict__, "_calls": calls, "_seen": None}

    def __prepare_scriptable__(self) -> Any:
        """What TorchScript asks a module for that it is to compile."""
        raise BadInput("torch.jit.script cannot compile an int8 layer")


@uncompiled("an int8 layer is computed by what is chosen at the call, which is no part of a graph")
def _computed(layer: Int8Conv, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise BadInput(f"`input` must be a tensor, got {type(x).__name__}")
    why = None if type(x) in PLAIN else f"its input is a {type(x).__name__}, and no plain tensor"
    if torch_api.tracing_state() is not None:
        why = "torch.jit traces it"
    elif is_transformed():
        why = "it is inside a transform of torch.func, such as vmap"
    if why is not None:
        raise BadInput(f"an int8 layer computes plain tensors at once, and {why}")
    if x.requires_grad and torch.is_grad_enabled():
        raise BadInput("an int8 layer is for inference and computes no gradient: call it in torch.no_grad()")
    with torch.no_grad():
        return layer._compute(x)
