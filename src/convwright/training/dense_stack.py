"""Densely connected convolutions in one buffer, as one node of autograd.

Each layer reads the input and the results of all layers before it, which lie next to each other in the buffer, and
writes its own result after them. The backward pass needs that buffer alone. On a GPU, layers of few channels have
kernels of their own; any others are convolutions, whose gradients are added up in a second buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.backends.triton.dense_layers.plan import DenseLayers
from convwright.eager.asking.autocast import autocasting, lowered_dtype, uncast
from convwright.eager.calls.call import FORMS, Call, Form, Request
from convwright.eager.gradients.autograd import Training, is_differentiated
from convwright.eager.into import training_into
from convwright.eager.running.pytorchs_own import foreign
from convwright.eager.running.runner import on_device
from convwright.eager.slow_path import slow_path
from convwright.errors import BackendError
from convwright.training.dense_kernels import dense_layers

_aten: Any = torch.ops.aten
_Gradients = list[Tensor | None]


def concatenated(
    x: Tensor, layers: Iterable[Callable[[Tensor], Tensor]], last: Callable[[Tensor], Tensor], channel_dim: int
) -> Tensor:
    """What such a stack computes, in PyTorch's operators: every layer reads a concatenation."""
    for layer in layers:
        x = torch.cat((x, torch.relu(layer(x))), channel_dim)
    return last(x)


@dataclass(frozen=True, slots=True)
class DenseStack:
    """Convolutions of width 3 with ReLU, each with a dilation of its own, and one of width 1 that reads everything.

    Parameters are the weight and the bias of each layer in turn, those of the last one at the end.
    """

    rank: int
    dilations: tuple[int, ...]
    reflects: bool = False

    @property
    def form(self) -> Form:
        return FORMS[self.rank - 1]

    def __call__(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """The last convolution's output for a batch ``x``."""
        if not autocasting(x):
            return self._computed(x, parameters)
        x, *lowered = (tensor.to(lowered_dtype(tensor)) for tensor in (x, *parameters))
        return uncast(x, lambda: self._computed(x, lowered))

    def _computed(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        learns = [torch.is_grad_enabled() and tensor.requires_grad for tensor in (x, *parameters)]
        kernels = self._kernels(x, parameters) if all(learns[1:]) or not any(learns) else None
        if any(learns) and kernels is not None:
            return _trained_by_kernels(self, kernels, x, *parameters)
        if any(learns):
            return _trained(self, x, *parameters)
        buffer = self.buffer(x, parameters)
        if kernels is not None:
            on_device(kernels.outputs, x.device)(buffer, parameters[:-2])
            return slow_path(self.last_call(buffer, parameters))
        for call in self.calls(buffer, parameters):
            y = slow_path(call)
        return y

    def _kernels(self, x: Tensor, parameters: Sequence[Tensor]) -> DenseLayers | None:
        if self.rank != 2 or self.reflects or self.memory_format(x) is not torch.contiguous_format:
            return None
        return dense_layers(x, self.dilations, parameters)

    def by_pytorch(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """The same in PyTorch's operators."""
        *layers, last = [partial(self._convolved, *layer) for layer in self.layers(parameters)]
        return concatenated(x, layers, last, 1)

    def _convolved(self, w: Tensor, bias: Tensor, dilation: int, x: Tensor) -> Tensor:
        return self.form.own(self.padded(x, dilation), w, bias, *self.form.window(self._request(dilation)))

    def layers(self, parameters: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Weight, bias and dilation of each layer; a dilation of 0 stands for the last one."""
        return zip(parameters[::2], parameters[1::2], (*self.dilations, 0), strict=True)

    def buffer(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Memory for the input, which is copied to it, and for the results of all layers but the last."""
        batch, channels, *sizes = x.shape
        shape = batch, parameters[-2].shape[1], *sizes
        buffer = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=self.memory_format(x))
        buffer[:, :channels] = x
        return buffer

    def memory_format(self, x: Tensor) -> torch.memory_format:
        last = torch.channels_last if self.rank == 2 else torch.channels_last_3d
        is_last = x.is_contiguous(memory_format=last) and not x.is_contiguous()
        return last if is_last else torch.contiguous_format

    def calls(self, buffer: Tensor, parameters: Sequence[Tensor]) -> Iterator[Call]:
        """One convolution after the other."""
        *layers, _ = self.layers(parameters)
        for w, bias, dilation in layers:
            read, out = buffer[:, : w.shape[1]], buffer[:, w.shape[1] : w.shape[1] + w.shape[0]]
            yield Call(self.form, self.padded(read, dilation), w, bias, None, out, self._request(dilation))
        yield self.last_call(buffer, parameters)

    def last_call(self, buffer: Tensor, parameters: Sequence[Tensor]) -> Call:
        w, bias = parameters[-2:]
        return Call(self.form, buffer, w, bias, None, None, self._request(0))

    def _request(self, dilation: int) -> Request:
        padding, activation = 0 if self.reflects else dilation, "relu" if dilation else None
        return Request(False, 1, padding, dilation or 1, 1, activation)

    def padded(self, x: Tensor, dilation: int) -> Tensor:
        """What a convolution reads; zeros around it are its own matter."""
        return F.pad(x, self._sides(dilation), mode="reflect") if self.reflects and dilation else x

    def unpadded(self, dx: Tensor, x: Tensor, dilation: int) -> Tensor:
        """The gradient of ``x`` from that of what a convolution read."""
        if not (self.reflects and dilation):
            return dx
        backward = _aten.reflection_pad2d_backward if self.rank == 2 else _aten.reflection_pad3d_backward
        gradient: Tensor = backward(dx, x, self._sides(dilation))
        return gradient

    def _sides(self, dilation: int) -> list[int]:
        return [dilation] * (2 * self.rank)


class _Trained(torch.autograd.Function):
    """All layers as one node. It keeps the buffer and, for derivatives of gradients alone, its operands."""

    @staticmethod
    def forward(ctx: Any, stack: DenseStack, x: Tensor, *parameters: Tensor) -> Tensor:
        buffer, trainings = stack.buffer(x, parameters), list[Training]()
        for call in stack.calls(buffer, parameters):
            trainings.append(_training(call, wants_dx=bool(trainings) or ctx.needs_input_grad[1]))
            y = trainings[-1].forward(*call.operands)
        ctx.stack, ctx.trainings = stack, trainings
        ctx.save_for_backward(buffer, x, *parameters)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        buffer, x, *parameters = ctx.saved_tensors
        _, *needs = ctx.needs_input_grad
        if is_differentiated() or foreign(dy) is not None:
            return None, *_gradients_by_pytorch(ctx.stack, dy, x, parameters, needs)
        return None, *_gradients(ctx.stack, ctx.trainings, dy, buffer, x.shape[1], parameters, needs)


class _TrainedByKernels(torch.autograd.Function):
    """The same where all layers but the last have kernels of their own, and all parameters learn."""

    @staticmethod
    def forward(ctx: Any, stack: DenseStack, kernels: DenseLayers, x: Tensor, *parameters: Tensor) -> Tensor:
        buffer = stack.buffer(x, parameters)
        packed = on_device(kernels.outputs, x.device)(buffer, parameters[:-2])
        last = stack.last_call(buffer, parameters)
        training = _training(last, wants_dx=False)
        ctx.stack, ctx.kernels, ctx.packed, ctx.training = stack, kernels, packed, training
        ctx.save_for_backward(buffer, x, *parameters)
        return training.forward(*last.operands)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        buffer, x, *parameters = ctx.saved_tensors
        _, _, *needs = ctx.needs_input_grad
        if is_differentiated() or foreign(dy) is not None:
            return None, None, *_gradients_by_pytorch(ctx.stack, dy, x, parameters, needs)
        w, training = parameters[-2], ctx.training
        gradients = on_device(ctx.kernels.gradients, x.device)
        try:
            dx, found = gradients(dy.contiguous(), buffer, ctx.packed, w, of_input=needs[0])
        except BackendError:  # a kernel that cannot be compiled here
            return None, None, *_gradients_by_pytorch(ctx.stack, dy, x, parameters, needs)
        _, dw, db = training.gradients(training.before_activation(dy, None), buffer, w, (False, True, True))
        return None, None, dx, *found, dw, db


_trained: Callable[..., Tensor] = _Trained.apply
_trained_by_kernels: Callable[..., Tensor] = _TrainedByKernels.apply


def _training(call: Call, *, wants_dx: bool) -> Training:
    """The three directions of a convolution. Autograd knows of no gradient of the buffer, which is wanted all the
    same."""
    with torch.enable_grad():
        x = call.x.detach().requires_grad_(wants_dx)
        return training_into(Call(call.form, x, call.w, call.bias, None, call.out, call.request))


def _gradients(
    stack: DenseStack,
    trainings: Sequence[Training],
    dy: Tensor,
    buffer: Tensor,
    channels: int,
    parameters: Sequence[Tensor],
    needs: Sequence[bool],
) -> _Gradients:
    """Those of the input and of the parameters. Each layer, from the last to the first, adds to the gradients of what
    it reads."""
    found: _Gradients = []
    # Layers before the first that learns something need no gradient.
    first = 0 if needs[0] else needs[1:].index(True) // 2
    layers, sums = list(stack.layers(parameters)), dy  # replaced by the gradients of the buffer after the last layer
    for number in range(len(layers) - 1, first - 1, -1):
        (w, _, dilation), training = layers[number], trainings[number]
        wanted = needs[0] or number > first, needs[2 * number + 1], needs[2 * number + 2]
        reads, writes = w.shape[1], w.shape[1] + w.shape[0]
        x = buffer[:, :reads]
        dz = (sums[:, reads:writes], buffer[:, reads:writes]) if dilation else (dy, None)
        dx, dw, db = training.gradients(training.before_activation(*dz), stack.padded(x, dilation), w, wanted)
        found += db, dw
        if dx is None:
            break
        if dilation:
            sums[:, :reads] += stack.unpadded(dx, x, dilation)
        else:
            sums = dx
    found += [None] * (2 * first)
    dx = sums[:, :channels].clone(memory_format=stack.memory_format(buffer)) if needs[0] else None
    return [dx, *reversed(found)]


def _gradients_by_pytorch(
    stack: DenseStack, dy: Tensor, x: Tensor, parameters: Sequence[Tensor], needs: Sequence[bool]
) -> _Gradients:
    """The same of PyTorch's operators, computed anew: these have derivatives, and map over batches of gradients."""
    operands = x, *parameters
    wanted = [operand for operand, is_wanted in zip(operands, needs, strict=True) if is_wanted]
    with torch.enable_grad():
        y = stack.by_pytorch(x, parameters)
    made = iter(torch.autograd.grad(y, wanted, dy, create_graph=torch.is_grad_enabled()))
    return [next(made) if is_wanted else None for is_wanted in needs]
