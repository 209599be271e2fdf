"""The six functions on a GPU beside PyTorch's, forward and backward, chosen freely and with an algorithm for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "conv1d": ("conv1d", (2, 6, 40), (8, 3, 5), {"padding": "same", "groups": 2}),
    "conv2d": ("conv2d", (2, 8, 15, 14), (12, 8, 3, 3), {"stride": (2, 1), "padding": 1}),
    "depthwise": ("conv2d", (2, 16, 15, 14), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    "conv3d": ("conv3d", (1, 4, 7, 8, 9), (6, 4, 3, 2, 3), {"dilation": (1, 2, 1), "padding": (1, 0, 1)}),
    "conv_transpose1d": ("conv_transpose1d", (2, 6, 20), (6, 4, 4), {"stride": 2, "output_padding": 1}),
    "conv_transpose2d": ("conv_transpose2d", (2, 8, 9, 8), (8, 5, 3, 3), {"stride": 2, "padding": 1}),
    "conv_transpose3d": ("conv_transpose3d", (1, 4, 4, 5, 4), (4, 3, 2, 3, 2), {"stride": (2, 1, 2), "groups": 2}),
}
ALGORITHMS = [None, "reference/gemm", "reference/direct", "reference/fft", "relayout(nhwc, torch/default)"]


def leaves(x_shape: tuple[int, ...], w_shape: tuple[int, ...], channels: int, *, last: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in (x_shape, w_shape, (channels,))]
    placed = [tensor.cuda() for tensor in made]
    if last and len(x_shape) == 4:
        placed[0] = placed[0].contiguous(memory_format=torch.channels_last)
    return [tensor.requires_grad_() for tensor in placed]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients(case: str, algorithm: str | None, last: bool) -> None:
    name, x_shape, w_shape, window = CASES[case]
    transposed = "transpose" in name
    channels = w_shape[1] * window.get("groups", 1) if transposed else w_shape[0]
    operands = leaves(x_shape, w_shape, channels, last=last)
    expected = getattr(F, name)(*operands, **window)
    dy = torch.linspace(-1, 1, expected.numel(), device="cuda", dtype=torch.float64).reshape(expected.shape)
    wanted = [expected, *torch.autograd.grad(expected, operands, dy)]
    asked = algorithm or "auto"
    with cw.algorithms(forward=asked, backward_data=asked, backward_weight=asked, strict=False):
        y = getattr(cw, name)(*operands, **window)
        found = [y, *torch.autograd.grad(y, operands, dy)]
    assert_close(found, wanted, rtol=1e-9, atol=1e-9, check_stride=False)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "hardswish"])
@pytest.mark.parametrize("grad", [False, True])
def test_activations_and_residuals(activation: str, grad: bool) -> None:
    x, w, b = leaves((2, 8, 9, 9), (8, 8, 3, 3), 8, last=False)
    z = torch.randn(2, 8, 9, 9, device="cuda", dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        y = cw.conv2d(x, w, b, padding=1, activation=activation, residual=z, algorithm="reference/gemm")
        expected = getattr(F, activation)(F.conv2d(x, w, b, padding=1) + z)
    assert_close(y, expected)
    if grad:
        assert_close(torch.autograd.grad(y.sum(), [x, w, b]), torch.autograd.grad(expected.sum(), [x, w, b]))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.second = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.second(torch.relu(self.first(x))))
        return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_model_under_enable(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    model = Block().cuda().to(dtype)
    x = torch.randn(4, 8, 20, 20, device="cuda", dtype=dtype)
    expected = model(x)
    with cw.enabled():
        for _ in range(3):
            y = model(x)
    assert_close(y, expected, rtol=2e-3, atol=2e-3)
    y.float().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_advise_and_tune_on_a_gpu() -> None:
    model, x = Block().cuda().eval(), torch.randn(2, 8, 20, 20, device="cuda")
    tuned = cw.tune(model, x, mode="quick")
    assert len(tuned.problems) == 2
    advice = cw.advise(model, x)
    assert len(advice.layers) == 2
    assert all(layer.now_us is not None and layer.now_us.value > 0 for layer in advice.layers)
    assert advice.model_us is not None
