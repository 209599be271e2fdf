"""Results have PyTorch's strides, along single elements, too, whatever computes them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.eager.gradients.autograd import Training
from eager.prefer import BOTH, GEMM, prefer, randn

PLANES, LAST = torch.contiguous_format, torch.channels_last


def laid(shape: tuple[int, ...], memory_format: torch.memory_format, *, grad: bool = False) -> Tensor:
    return randn(*shape).contiguous(memory_format=memory_format).requires_grad_(grad)


@pytest.mark.first_cases(12)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("algorithm", [GEMM, "torch/onednn", None])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "transposed"),
    [((2, 4, 8, 8), (1, 4, 3, 3), False), ((2, 4, 3, 3), (5, 4, 3, 3), False), ((2, 4, 8, 8), (4, 1, 3, 3), True)],
)
@pytest.mark.parametrize("x_as", [PLANES, LAST], ids=str)
@pytest.mark.parametrize("w_as", [PLANES, LAST], ids=str)
def test_an_output_of_one_channel_or_of_one_pixel(
    algorithm: str | None,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    transposed: bool,
    x_as: torch.memory_format,
    w_as: torch.memory_format,
    compiled: bool,
) -> None:
    x, w = laid(x_shape, x_as), laid(w_shape, w_as)
    name, direction = ("conv_transpose2d", "backward_data") if transposed else ("conv2d", "forward")
    ours: Any = getattr(cw, name)
    if compiled:
        torch._dynamo.reset()
        ours = torch.compile(lambda x, w: getattr(cw, name)(x, w), backend="eager")
    with nullcontext() if algorithm is None else cw.algorithms(strict=False, **{direction: algorithm}):
        y = ours(x, w)
    assert y.stride() == getattr(F, name)(x, w).stride()


@pytest.mark.first_cases(12)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [((2, 4, 8, 8), (1, 4, 3, 3)), ((2, 4, 3, 3), (5, 4, 3, 3)), ((2, 4, 3, 8), (5, 4, 3, 3))],
)
@BOTH
def test_behind_a_sum_and_an_activation(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    activation: str,
    residual: bool,
    compiled: bool,
    algorithm: str,
) -> None:
    x, w = laid(x_shape, LAST), laid(w_shape, LAST)
    expected = F.conv2d(x, w)
    given = torch.ones_like(expected) if residual else None
    if given is not None:
        expected = expected + given
    expected = {"none": lambda y: y, "relu": F.relu, "gelu": F.gelu}[activation](expected)

    def ours(x: Tensor, w: Tensor) -> Tensor:
        return cw.conv2d(x, w, activation=activation, residual=given)

    if compiled:
        torch._dynamo.reset()
        ours = torch.compile(ours, backend="aot_eager")
    with cw.algorithms(forward=algorithm):
        for _ in range(2):
            y = ours(x, w)
            assert y.stride() == expected.stride()
            assert_close(y, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("groups", [2, 4])
def test_one_pixel_of_groups(dtype: torch.dtype, groups: int) -> None:
    x, w = (laid(shape, LAST).to(dtype) for shape in ((1, 4, 1, 1), (groups, 4 // groups, 1, 1)))
    ours, theirs = cw.conv2d(x, w, groups=groups, algorithm=GEMM), F.conv2d(x, w, groups=groups)
    assert ours.stride() == theirs.stride()


def test_a_gradient_that_differs_along_single_elements_only_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    seen: list[int] = []
    own = Training.gradients

    def watched(self: Training, dy: Tensor, *rest: Any) -> Any:
        seen.append(dy.data_ptr())
        return own(self, dy, *rest)

    monkeypatch.setattr(Training, "gradients", watched)
    x, w = laid((2, 4, 8, 8), LAST, grad=True), laid((1, 4, 3, 3), LAST, grad=True)
    for _ in range(2):
        y = cw.conv2d(x, w)
        dy = torch.ones_like(y)
        y.backward(dy)
        assert seen[-1] == dy.data_ptr()


@pytest.mark.parametrize("into", [False, True])
def test_a_gradient_lies_as_its_operand_whatever_the_output_is_written_to(
    into: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    x, w = laid((2, 6, 8, 8), LAST, grad=True), laid((4, 6, 1, 1), LAST, grad=True)
    buffer = torch.zeros(2, 4, 8, 8, dtype=x.dtype)
    y = cw.conv2d_into(buffer, x, w) if into else cw.conv2d(x, w)
    dx, dw = torch.autograd.grad(y.square().sum(), (x, w))
    assert (dx.stride(), dw.stride()) == (x.stride(), w.stride())


@BOTH
def test_what_can_be_viewed_of_pytorchs_can_be_viewed_of_ours(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = laid((2, 4, 8, 8), LAST), laid((1, 4, 3, 3), LAST)
    for _ in range(2):
        assert_close(cw.conv2d(x, w).view(2, -1), F.conv2d(x, w).view(2, -1))


@pytest.mark.parametrize("x_as", [PLANES, LAST], ids=str)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "groups"),
    [((2, 6, 8, 8), (4, 6, 1, 1), 1), ((2, 6, 8, 8), (6, 1, 3, 3), 6), ((2, 1, 8, 8), (4, 1, 3, 3), 1)],
)
@BOTH
def test_a_gradient_lies_as_its_operand_or_optimizers_take_each_parameter_alone(
    x_as: torch.memory_format,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    groups: int,
    algorithm: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefer(monkeypatch, algorithm)
    x, w = laid(x_shape, x_as, grad=True), laid(w_shape, x_as, grad=True)
    for _ in range(2):
        dx, dw = torch.autograd.grad(cw.conv2d(x, w, groups=groups).square().sum(), (x, w))
        assert (dx.stride(), dw.stride()) == (x.stride(), w.stride())


@pytest.mark.parametrize("x_as", [PLANES, LAST], ids=str)
@pytest.mark.parametrize("w_as", [PLANES, LAST], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 1, 8, 8), (2, 3, 1, 1), (1, 3, 8, 1)])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_an_inputs_gradient_lies_as_pytorchs(
    name: str,
    shape: tuple[int, ...],
    x_as: torch.memory_format,
    w_as: torch.memory_format,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefer(monkeypatch, GEMM)
    w_shape = (4, shape[1], 3, 3) if name == "conv2d" else (shape[1], 4, 3, 3)
    x, w = laid(shape, x_as, grad=True), laid(w_shape, w_as)
    for _ in range(2):
        dxs = [torch.autograd.grad(getattr(of, name)(x, w, padding=1).square().sum(), x)[0] for of in (cw, F)]
        assert dxs[0].stride() == dxs[1].stride()
        assert_close(*dxs)


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize("size", [1, 5])
def test_the_result_of_a_slice_has_the_strides_that_pytorch_gives_it(channels: int, size: int) -> None:
    buffer = randn(2, 16, size, size).to(memory_format=torch.channels_last)
    w = randn(6, channels, 1, 1)
    for x in (buffer[:, :channels], buffer[:, :channels].contiguous(), buffer[:, 3 : 3 + channels]):
        ours, theirs = cw.conv2d(x, w, algorithm=GEMM), F.conv2d(x, w)
        strides = zip(ours.shape, ours.stride(), theirs.stride(), strict=True)
        assert all(mine == own for length, mine, own in strides if length > 1), (ours.stride(), theirs.stride())
        assert_close(ours, theirs)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("length", [1, 8])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_row_of_one_channel_has_the_strides_that_pytorch_gives_it(
    channels: int, length: int, transposed: bool
) -> None:
    rows, w = randn(2, length, channels), randn(*((channels, 4, 1) if transposed else (4, channels, 1)))
    function, own = (cw.conv_transpose1d, F.conv_transpose1d) if transposed else (cw.conv1d, F.conv1d)
    for x in (rows.transpose(1, 2), rows.transpose(1, 2).contiguous()):
        ours, theirs = function(x, w, algorithm=GEMM), own(x, w)
        assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
