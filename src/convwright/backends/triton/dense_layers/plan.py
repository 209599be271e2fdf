"""A stack of dense layers and its gradients: kernels that are compiled once, and their launches for one image size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.launching.launch import DriverLaunch, Launch, launch_of
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.errors import Refused

_DTYPES = (DType.FP32, DType.FP16, DType.BF16)
# Wider layers run well as matrix products.
_WIDEST = 4
_WARPS = 4
_PIXELS, _LANES = 128, 128  # pixels of an image per program, and pixels per step of a weight gradient
# Weight gradients that a thread accumulates per pixel; more would not fit its registers.
_WEIGHTS_AT_ONCE = 108
# Programs that keep a large GPU busy with weight gradients.
_PROGRAMS = 4096
_NUMBERS = ("fp32", 4)  # with its alignment: a pointer may point to any number of a table


@dataclass(frozen=True, slots=True)
class Layers:
    """3x3 convolutions with ReLU, of ``width`` channels each, that read ``inputs`` channels and all layers before them,
    and a 1x1 convolution of all channels to ``outputs``."""

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
        """The shapes of the weights of all layers but the last."""
        return [(self.width, self.inputs + self.width * layer, 3, 3) for layer in range(self.depth)]


class DenseKernels:
    """The kernels of a stack on one device, for images of any size. Each is compiled when it is first needed."""

    def __init__(self, layers: Layers, dtype: DType, device: DeviceFacts) -> None:
        if device.kind != "cuda" and not interpreting():
            raise Refused(f"the kernels of dense layers need an NVIDIA GPU, got {device.name}")
        if layers.width > _WIDEST or dtype not in _DTYPES:
            raise Refused(f"the kernels of dense layers need at most {_WIDEST} channels each, in fp32, fp16 or bf16")
        self.layers, self._dtype, self._device = layers, dtype, device
        self.together = max(1, _WEIGHTS_AT_ONCE // (9 * layers.width))
        jobs = [
            number for layer, shape in enumerate(layers.shapes)
            for first in range(0, shape[1], self.together) for number in (layer, first)
        ]  # fmt: skip
        self.dilations, self.jobs = self.table(layers.dilations), self.table(jobs)
        self.job_count = len(jobs) // 2
        self.numbers = self.table(range(-1, layers.depth))
        self._compiled: dict[str, Launch] = {}

    def table(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float32, device=self._device.torch_name or "cpu")

    def calls(self) -> dict[str, KernelCall]:
        """All kernels by name, each for one block."""
        from convwright.backends.triton.dense_layers import kernel

        layers, tables = self.layers, dict.fromkeys(("dilations", "sizes"), _NUMBERS)
        sizes = {"INPUTS": layers.inputs, "WIDTH": layers.width, "DEPTH": layers.depth}

        def stored(*names: str) -> dict[str, tuple[str, int]]:
            return dict.fromkeys(names, (self._dtype.value, self._dtype.nbytes))

        of_pixels, numbered = sizes | {"LANES": _PIXELS}, {"number": _NUMBERS, **tables}
        operands = numbered | stored("w", "last_w", "dy", "y", "dz", "dx")
        of_weights = {"jobs": _NUMBERS, **tables, **stored("y", "dz"), "sums": _NUMBERS}
        gradient = of_pixels | {"OUTPUTS": layers.outputs}
        shared = {"JOBS": self.job_count, "TOGETHER": self.together, "LANES": _LANES}
        return {
            "output": KernelCall(kernel.layer_output, numbered | stored("w", "y"), of_pixels, 1, _WARPS, 1),
            "gradient": KernelCall(kernel.layer_gradient, operands, gradient | {"OF_INPUT": False}, 1, _WARPS, 1),
            "input": KernelCall(kernel.layer_gradient, operands, gradient | {"OF_INPUT": True}, 1, _WARPS, 1),
            "weights": KernelCall(kernel.weight_gradients, of_weights, sizes | shared, 1, _WARPS, 1),
        }

    def launch(self, name: str, blocks: int) -> Launch:
        """One of the kernels, ready to run in ``blocks`` blocks."""
        compiled = self._compiled.get(name)
        if isinstance(compiled, DriverLaunch):
            return DriverLaunch(replace(compiled.binary, blocks=blocks), self._device)
        made = self._compiled[name] = launch_of(replace(self.calls()[name], blocks=blocks), self._device)
        return made


class DenseLayers:
    """The kernels for ``images`` (N, H, W), called with NCHW tensors, on one device."""

    def __init__(self, kernels: DenseKernels, images: tuple[int, int, int]) -> None:
        layers, (count, height, width) = kernels.layers, images
        largest = prod(images) * max(layers.channels, layers.outputs)
        if not 0 < largest < 2**31:
            raise Refused(f"the kernels of dense layers need 1 to 2^31 - 1 elements, got {largest:,}")
        self._kernels, self._layers, self._images = kernels, layers, images
        self._blocks = count * -(-height * width // _PIXELS)
        self._counts = [*map(prod, layers.shapes), layers.width * layers.depth]
        jobs = kernels.job_count
        steps = -(-prod(images) * jobs // (_LANES * max(_PROGRAMS, jobs)))
        self._parts = -(-prod(images) // (_LANES * steps))
        self._sizes = kernels.table((*images, steps))
        self._output = kernels.launch("output", self._blocks)

    @cached_property
    def _gradient(self) -> Launch:
        return self._kernels.launch("gradient", self._blocks)

    @cached_property
    def _input_gradient(self) -> Launch:
        return self._kernels.launch("input", self._blocks * self._layers.inputs)

    @cached_property
    def _weights(self) -> Launch:
        return self._kernels.launch("weights", self._kernels.job_count * self._parts)

    def outputs(self, y: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Fill ``y``, whose first channels are the input, by all layers but the last. ``parameters`` are the weight and
        the bias of each layer in turn. Returns them in the form that ``gradients`` takes."""
        packed = torch.cat([each.reshape(-1) for each in (*parameters[::2], *parameters[1::2])])
        for layer in range(self._layers.depth):
            self._run(self._output, layer, packed, y)
        return packed

    def gradients(
        self, dy: Tensor, y: Tensor, packed: Tensor, last_weight: Tensor, *, of_input: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        """The gradients of the stack's input, if wanted, and of the parameters of all layers but the last, from ``dy``,
        the gradient of the last layer's output."""
        layers, (count, *sizes) = self._layers, self._images
        dz = y.new_empty((count, layers.width * layers.depth, *sizes))
        dx = y.new_empty((count, layers.inputs, *sizes)) if of_input else None
        operands = packed, last_weight, dy, y, dz
        for layer in reversed(range(layers.depth)):
            self._run(self._gradient, layer, *operands, None)
        if dx is not None:
            self._run(self._input_gradient, -1, *operands, dx)
        sums = torch.empty((self._parts, sum(self._counts)), dtype=torch.float32, device=y.device)
        self._weights(self._kernels.jobs, self._kernels.dilations, self._sizes, y, dz, sums)
        return dx, self._parameters(sums.sum(0).to(y.dtype))

    def _run(self, launch: Launch, layer: int, *operands: Tensor | None) -> None:
        numbers, place = self._kernels.numbers, layer + 1
        operands = self._kernels.dilations, self._sizes, *operands
        if launch.stream is None:
            launch(numbers[place : place + 1], *operands)
            return
        addresses = [0 if operand is None else operand.data_ptr() for operand in operands]
        launch.at([numbers.data_ptr() + 4 * place, *addresses], launch.stream())

    def _parameters(self, packed: Tensor) -> list[Tensor]:
        *weights, biases = torch.split(packed, self._counts)
        shaped = [each.view(shape) for each, shape in zip(weights, self._layers.shapes, strict=True)]
        pairs = zip(shaped, torch.split(biases, self._layers.width), strict=True)
        return [each for pair in pairs for each in pair]
