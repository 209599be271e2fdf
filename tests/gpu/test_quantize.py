"""A model in int8 on a GPU: exact sums, whatever was chosen, in each precision and layout."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from convwright.core.error_bound import exact_bound
from convwright.quantizing.int8_layer import Int8Conv
from convwright.tensors import core_dtype

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]


def model_of(dtype: torch.dtype, memory_format: torch.memory_format) -> Any:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2, groups=2),
        nn.Conv2d(64, 32, 1, bias=False),
    )  # fmt: skip
    return nn.Sequential(*layers).eval().to("cuda", dtype, memory_format=memory_format)


def images(dtype: torch.dtype, memory_format: torch.memory_format) -> list[Tensor]:
    made = (torch.randn(4, 16, 28, 28, device="cuda", dtype=dtype) for _ in range(3))
    return [x.contiguous(memory_format=memory_format) for x in made]


def exact(layer: Int8Conv, x: Tensor) -> Tensor:
    """What the layer says that it computes, in fp64 on the CPU."""
    scale, w = layer.scale.double().cpu(), layer.weight_int8.double().cpu()
    whole = (x.float().cpu() / layer.input_scale.cpu()).round().clamp(-127, 127).double()
    y = F.conv2d(whole, w, None, layer.stride, layer.padding, layer.dilation, layer.groups) * scale.view(-1, 1, 1)
    y = y if layer.bias is None else y + layer.bias.double().cpu().view(-1, 1, 1)
    return y.relu() if str(layer.activation) == "relu" else y


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_layers_are_exact_and_the_model_is_near(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    model, samples = model_of(dtype, memory_format), images(dtype, memory_format)
    made: Any = cw.quantize(model, samples)
    assert [layer.kept for layer in made.layers] == [None, None, None]
    assert made.error < 0.03
    x = samples[0][:2]
    for position in (0, 3, 4):
        layer, own = made.model[position], model[position]
        given = x
        x = layer(given)
        assert x.dtype is dtype
        assert x.stride() == own(given).stride()
        problem = cw.ConvProblem.parse("ic1ih1oc1kh1 dt:int8 ep:scale+bias+relu")
        meant = exact(layer, given)
        roundoff = core_dtype(dtype).roundoff
        # Scaled and added to in fp32; where nothing stores half precision at once, rounded once more.
        bound = exact_bound(problem) * 2.0**-24 * (meant.abs() + _added(layer)) + roundoff * meant.abs() + 1e-7
        assert bool(((x.double().cpu() - meant).abs() <= bound).all())


def _added(layer: Int8Conv) -> Tensor:
    """What sum and bias may cancel of."""
    return torch.zeros(1) if layer.bias is None else 2 * layer.bias.double().abs().cpu().view(-1, 1, 1)


def test_captured_in_a_graph_and_moved() -> None:
    samples = images(torch.float16, torch.channels_last)
    made: Any = cw.quantize(model_of(torch.float16, torch.channels_last), samples).model
    x = samples[0].clone(memory_format=torch.preserve_format)
    with torch.no_grad():
        meant = [made(sample) for sample in samples]
        graph = torch.cuda.CUDAGraph()
        made(x)
        with torch.cuda.graph(graph):
            y = made(x)
    for sample, each in zip(samples, meant, strict=True):
        x.copy_(sample)
        graph.replay()
        assert torch.equal(y, each)
    again = copy.deepcopy(made).cpu()
    on_cpu = again(samples[0].cpu())
    assert float((on_cpu.cuda() - meant[0]).norm() / meant[0].norm()) < 0.02
