"""A stack of dense layers and its gradients, made ready for images of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.launching.launch import Launch, launch_of
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.errors import Refused

_DTYPES = (DType.FP32, DType.FP16, DType.BF16)
# Wider layers are matrices enough for other kernels.
_WIDEST = 4
_WARPS = 4
_PIXELS, _LANES = 256, 128  # of an image that a program computes, and for which it adds up weights' gradients at a time
# A thread adds up so many weights' gradients of each of its pixels: more would not fit into its registers.
_WEIGHTS_AT_ONCE = 36
# Programs that keep a large GPU busy with weights.
_PROGRAMS = 4096
_NUMBERS = ("fp32", 4)  # with its alignment: any of a table's numbers may be pointed to


@dataclass(frozen=True, slots=True)
class Layers:
    """3x3 convolutions with ReLU, of ``width`` channels each, that read ``inputs`` channels and those of all layers
    before them, and a 1x1 convolution of all channels to ``outputs``."""

    inputs: int
    width: int
    dilations: tuple[int, ...]
    outputs: int

    @property
    def depth(self) -> int:
        return len(self.dilations)

    @property
    def channels(self) -> int:
        return self.inputs + self.width * self.depth

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Those of the weights of all layers but the last."""
        return [(self.width, self.inputs + self.width * layer, 3, 3) for layer in range(self.depth)]


class DenseLayers:
    """Called with tensors that lie in planes one behind the other, on one device. Each kernel is compiled when it is
    first needed, that of the layers at once."""

    def __init__(self, layers: Layers, images: tuple[int, int, int], dtype: DType, device: DeviceFacts) -> None:
        """For ``images`` (N, H, W)."""
        _check(layers, images, dtype, device)
        self._layers, self._images, self._dtype, self._device = layers, images, dtype, device
        self._place = torch.device(device.torch_name or "cpu")
        self._dilations = self._table(layers.dilations)
        self._numbers = self._table(range(-1, layers.depth))
        self._counts = [*map(prod, layers.shapes), layers.width * layers.depth]
        self._output = launch_of(output_call(layers, images, dtype), device)

    def _table(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float32, device=self._place)

    @cached_property
    def _gradient(self) -> Launch:
        return launch_of(gradient_call(self._layers, self._images, self._dtype, of_input=False), self._device)

    @cached_property
    def _input_gradient(self) -> Launch:
        return launch_of(gradient_call(self._layers, self._images, self._dtype, of_input=True), self._device)

    @cached_property
    def _weights(self) -> tuple[Launch, Tensor, int]:
        """The kernel, its jobs, and the number of parts."""
        pixels, together = prod(self._images), max(1, _WEIGHTS_AT_ONCE // (9 * self._layers.width))
        jobs = [
            number for layer, shape in enumerate(self._layers.shapes)
            for first in range(0, shape[1], together) for number in (layer, first)
        ]  # fmt: skip
        count = len(jobs) // 2
        steps = -(-pixels * count // (_LANES * max(_PROGRAMS, count)))
        parts = -(-pixels // (_LANES * steps))
        call = weights_call(
            self._layers, self._images, self._dtype, jobs=count, together=together, steps=steps, parts=parts
        )
        return launch_of(call, self._device), self._table(jobs), parts

    def outputs(self, y: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Fill ``y``, whose first channels are the input, by all layers but the last. ``parameters`` are the weight and
        the bias of each in turn. Returns them as ``gradients`` takes them."""
        packed = torch.cat([each.reshape(-1) for each in (*parameters[::2], *parameters[1::2])])
        for layer in range(self._layers.depth):
            self._run(self._output, layer, self._dilations, packed, y)
        return packed

    def gradients(
        self, dy: Tensor, y: Tensor, packed: Tensor, last_weight: Tensor, *, of_input: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Those of the stack's input, if wanted, and of the parameters of all layers but the last, from ``dy``, that of
        the last one's output."""
        layers, (count, *sizes) = self._layers, self._images
        dz = y.new_empty((count, layers.width * layers.depth, *sizes))
        dx = y.new_empty((count, layers.inputs, *sizes)) if of_input else None
        operands = self._dilations, packed, last_weight, dy, y, dz
        for layer in reversed(range(layers.depth)):
            self._run(self._gradient, layer, *operands, None)
        if dx is not None:
            self._run(self._input_gradient, -1, *operands, dx)
        launch, jobs, parts = self._weights
        sums = torch.empty((parts, sum(self._counts)), dtype=torch.float32, device=y.device)
        launch(jobs, self._dilations, y, dz, sums)
        return dx, self._parameters(sums.sum(0).to(y.dtype))

    def _run(self, launch: Launch, layer: int, *operands: Tensor | None) -> None:
        if launch.stream is None:
            launch(self._numbers[layer + 1 : layer + 2], *operands)
            return
        addresses = [0 if operand is None else operand.data_ptr() for operand in operands]
        launch.at([self._numbers.data_ptr() + 4 * (layer + 1), *addresses], launch.stream())

    def _parameters(self, packed: Tensor) -> list[Tensor]:
        *weights, biases = torch.split(packed, self._counts)
        shaped = [each.view(shape) for each, shape in zip(weights, self._layers.shapes, strict=True)]
        return [each for pair in zip(shaped, torch.split(biases, self._layers.width), strict=True) for each in pair]


def _check(layers: Layers, images: tuple[int, int, int], dtype: DType, device: DeviceFacts) -> None:
    if device.kind != "cuda" and not interpreting():
        raise Refused(f"the kernels of dense layers need an NVIDIA GPU, got {device.name}")
    if layers.width > _WIDEST or dtype not in _DTYPES:
        raise Refused(f"the kernels of dense layers serve up to {_WIDEST} channels each, stored in 32 bits or 16")
    largest = prod(images) * max(layers.channels, layers.outputs)
    if not 0 < largest < 2**31:
        raise Refused(f"the kernels of dense layers serve from 1 to 2^31 - 1 elements, got {largest:,}")


def _sizes(layers: Layers, images: tuple[int, int, int]) -> dict[str, int]:
    _, height, width = images
    return {"INPUTS": layers.inputs, "WIDTH": layers.width, "DEPTH": layers.depth, "H": height, "W": width}


def _pointers(dtype: DType, tables: Sequence[str], images: Sequence[str]) -> dict[str, tuple[str, int]]:
    return {**dict.fromkeys(tables, _NUMBERS), **dict.fromkeys(images, (dtype.value, dtype.nbytes))}


def _blocks(images: tuple[int, int, int]) -> int:
    count, height, width = images
    return count * -(-height * width // _PIXELS)


def output_call(layers: Layers, images: tuple[int, int, int], dtype: DType) -> KernelCall:
    from convwright.backends.triton.dense_layers.kernel import layer_output

    pointers = _pointers(dtype, ("number", "dilations"), ("w", "y"))
    return KernelCall(
        layer_output, pointers, _sizes(layers, images) | {"LANES": _PIXELS}, _blocks(images), _WARPS, stages=1
    )


def gradient_call(layers: Layers, images: tuple[int, int, int], dtype: DType, *, of_input: bool) -> KernelCall:
    from convwright.backends.triton.dense_layers.kernel import layer_gradient

    pointers = _pointers(dtype, ("number", "dilations"), ("w", "last_w", "dy", "y", "dz", "dx"))
    constants = _sizes(layers, images) | {"OUTPUTS": layers.outputs, "OF_INPUT": of_input, "LANES": _PIXELS}
    blocks = _blocks(images) * (layers.inputs if of_input else 1)
    return KernelCall(layer_gradient, pointers, constants, blocks, _WARPS, stages=1)


def weights_call(
    layers: Layers, images: tuple[int, int, int], dtype: DType, *, jobs: int, together: int, steps: int, parts: int
) -> KernelCall:
    from convwright.backends.triton.dense_layers.kernel import weight_gradients

    pointers = {**_pointers(dtype, ("jobs", "dilations"), ("y", "dz")), "sums": _NUMBERS}
    shared = {"N": images[0], "JOBS": jobs, "TOGETHER": together, "STEPS": steps, "LANES": _LANES}
    return KernelCall(weight_gradients, pointers, _sizes(layers, images) | shared, jobs * parts, _WARPS, stages=1)
