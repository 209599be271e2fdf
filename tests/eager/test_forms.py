"""All six functions are PyTorch's: over forms of arguments, dtypes, layouts, epilogues and gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.backends.torch_native.own import gradients
from convwright.core.problem import ConvProblem
from eager.each_form import ACTIVATED, EACH, NAMES, in_mode, is_transposed, operands, rank_of
from eager.prefer import BOTH, GEMM, count_calls, prefer, randn

# (channels and taps of the operands, arguments); a tuple or list of three is cut to the rank.
COMMON: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "pointwise": ({"taps": (1, 1, 1)}, {}),
    "stride": ({}, {"stride": 2}),
    "strides": ({}, {"stride": (2, 1, 3)}),
    "stride list": ({}, {"stride": [1, 2, 2]}),
    "stride for all": ({}, {"stride": [2]}),
    "stride beyond the taps": ({"taps": (1, 2, 1)}, {"stride": 3}),
    "padding": ({}, {"padding": 1}),
    "paddings": ({}, {"padding": (1, 0, 2)}),
    "padding list": ({}, {"padding": [0, 1, 1]}),
    "dilation": ({}, {"dilation": 2, "padding": 2}),
    "dilations": ({}, {"dilation": (1, 2, 1), "padding": 1}),
    "groups": ({"groups": 2}, {"groups": 2}),
    "depthwise": ({"c": 4, "k": 4, "groups": 4}, {"groups": 4, "padding": 1}),
    "depthwise multiplied": ({"c": 3, "k": 6, "groups": 3}, {"groups": 3, "stride": 2, "padding": 1}),
    "one image": ({"n": 1}, {"padding": 1}),
    "one channel": ({"c": 1, "k": 1}, {"padding": 1}),
    "everything": (
        {"c": 6, "k": 9, "groups": 3},
        {"stride": (2, 1, 1), "padding": (1, 2, 1), "dilation": (1, 2, 1), "groups": 3},
    ),
}
FORWARD = {
    "same": ({}, {"padding": "same"}),
    "same, even taps": ({"taps": (2, 4, 2)}, {"padding": "same"}),
    "same, dilated": ({"taps": (2, 3, 2)}, {"padding": "same", "dilation": (3, 1, 1)}),
    "valid": ({}, {"padding": "valid", "stride": 2}),
    "padding beyond the taps": ({"taps": (2, 2, 2)}, {"padding": 3}),
}
TRANSPOSED = {
    "output padding": ({}, {"stride": 2, "output_padding": 1}),
    "output paddings": ({}, {"stride": (3, 2, 2), "output_padding": (2, 0, 1), "padding": 1}),
    "output padding list": ({}, {"stride": 2, "output_padding": [1, 0, 1]}),
    "output padding beyond the stride": ({}, {"dilation": 3, "output_padding": 2, "padding": 2}),
    "output padding that no input reaches": ({}, {"stride": 1, "dilation": 4, "output_padding": 3}),
    "everything transposed": (
        {"c": 6, "k": 9, "groups": 3},
        {"stride": (2, 3, 2), "padding": (1, 0, 1), "output_padding": (1, 2, 0), "dilation": (1, 2, 1), "groups": 3},
    ),
}
FORMS = [
    pytest.param(name, *case, id=f"{name}-{what}")
    for name in NAMES
    for what, case in (COMMON | (TRANSPOSED if is_transposed(name) else FORWARD)).items()
]


def cut(arguments: dict[str, Any], rank: int) -> dict[str, Any]:
    """A copy, with as many entries as there are dimensions."""
    return {
        key: value[:rank] if isinstance(value, tuple | list) and len(value) > 1 else value
        for key, value in arguments.items()
    }


def results(function: Any, given: list[Tensor], arguments: dict[str, Any]) -> list[Tensor]:
    """The result and the gradients of fresh copies of the operands, in their own layout."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in given]
    y = function(*leaves, **arguments)
    dy = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).to(y.dtype).reshape(y.shape)
    return [y, *torch.autograd.grad(y, leaves, dy)]


@BOTH
@pytest.mark.parametrize(("name", "sizes", "arguments"), FORMS)
def test_results_and_gradients(
    name: str, sizes: dict[str, Any], arguments: dict[str, Any], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    arguments = cut(arguments, rank_of(name))
    given = list(operands(name, **sizes))
    for tensors in (given[:2], given):
        for _ in range(2):  # the second call takes the short way
            ours, theirs = (results(getattr(of, name), tensors, arguments) for of in (cw, F))
            assert_close(ours, theirs)
        with torch.no_grad():
            assert_close(getattr(cw, name)(*tensors, **arguments), theirs[0])
    # Such an output padding is no backward_data problem: PyTorch computes it.
    ours_too = algorithm == GEMM and arguments.get("output_padding") != 3
    assert ("forward" in called) == ("backward_data" in called) == ("backward_weight" in called) == ours_too


SMALL: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("conv1d", {"c": 2, "k": 2}, {"padding": 1, "stride": 2}),
    ("conv2d", {"c": 2, "k": 2, "groups": 2}, {"groups": 2, "dilation": (1, 2)}),
    ("conv3d", {"n": 1, "c": 2, "k": 1, "taps": (2, 2, 2)}, {"padding": "valid"}),
    ("conv_transpose1d", {"c": 2, "k": 2}, {"stride": 2, "output_padding": 1}),
    ("conv_transpose2d", {"n": 1, "c": 2, "k": 2, "groups": 2, "taps": (2, 2)}, {"groups": 2, "padding": 1}),
    ("conv_transpose3d", {"n": 1, "c": 1, "k": 2, "taps": (2, 1, 2)}, {"dilation": (1, 1, 2)}),
]


@BOTH
@pytest.mark.parametrize(("name", "sizes", "arguments"), SMALL)
def test_gradients_by_finite_differences(
    name: str, sizes: dict[str, Any], arguments: dict[str, Any], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    rank, function = rank_of(name), getattr(cw, name)
    x, w, b = operands(name, **sizes)
    x = x[(slice(0, 1), slice(None), *[slice(0, 3)] * rank)].clone()
    given = [tensor.requires_grad_() for tensor in (x, w, b)]
    arguments = {**arguments, "activation": "relu" if algorithm == GEMM else None}
    # Batched gradients are those of vmap over a backward pass.
    assert gradcheck(lambda *t: function(*t, **arguments), given, check_batched_grad=True)
    assert gradgradcheck(lambda *t: function(*t, **arguments), given)


def whole(tensor: Tensor) -> Tensor:
    """Small whole numbers in place of the values: their sums are exact in every dtype."""
    return (tensor * 1.5).round().clamp(-2, 2)


@EACH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@BOTH
def test_dtypes(name: str, dtype: torch.dtype, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = (whole(tensor).to(dtype) for tensor in operands(name))
    for _ in range(2):
        assert_close(getattr(cw, name)(x, w, b, 1, 1), getattr(F, name)(x, w, b, 1, 1), rtol=0, atol=0)


def channels_last(tensor: Tensor) -> Tensor:
    order = [0, *range(2, tensor.dim()), 1]
    return tensor.permute(order).contiguous().permute(0, tensor.dim() - 1, *range(1, tensor.dim() - 1))


def turned(tensor: Tensor) -> Tensor:
    """The same values, the last dimension stored before the first."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def every_other(tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(2, -1)[..., ::2]


def offset(tensor: Tensor) -> Tensor:
    """The same values in a slice that begins inside a larger buffer."""
    buffer = tensor.new_full((tensor.shape[0] + 1, tensor.shape[1] + 3, *tensor.shape[2:]), float("nan"))
    return buffer[1:, 2 : 2 + tensor.shape[1]].copy_(tensor)


def expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape)


LAYOUTS = [channels_last, turned, every_other, offset, expanded]


@EACH
@pytest.mark.parametrize(
    ("x_as", "w_as"), [*product(LAYOUTS[:4], LAYOUTS[:2]), (expanded, offset)], ids=lambda f: f.__name__
)
@BOTH
def test_memory_layouts(name: str, x_as: Any, w_as: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    x, w = x_as(x), w_as(w)
    for _ in range(2):
        ours, theirs = getattr(cw, name)(x, w, b, padding=1), getattr(F, name)(x, w, b, padding=1)
        assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
        assert_close(*(results(getattr(of, name), [x, w, b], {"stride": 2}) for of in (cw, F)))


def test_a_gradient_of_uneven_padding_lies_densely() -> None:
    problem = ConvProblem.of((2, 3, 6, 7), (4, 3, 2, 2), padding=((1, 0), (0, 1)), direction="backward_data")
    for order in torch.contiguous_format, torch.channels_last:
        x, w = randn(2, 3, 6, 7).contiguous(memory_format=order), randn(4, 3, 2, 2)
        dy = randn(2, 4, 6, 7).contiguous(memory_format=order)
        dx, _, _ = gradients(problem, dy, x, w, (True, False, False))
        assert dx is not None
        assert dx.is_contiguous(memory_format=order)


@pytest.mark.parametrize("algorithm", ["torch/default", "as-2d(torch/default)", "pad-c(4, torch/default)", GEMM])
def test_a_result_lies_densely_where_the_output_is_padded(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By more than a stride, so that the gradient which computes it has a wider input."""
    prefer(monkeypatch, algorithm)
    x, w = randn(3, 2, 3), randn(2, 2, 3)
    for _ in range(2):
        ours, theirs = (of.conv_transpose1d(x, w, padding=1, dilation=2, output_padding=1) for of in (cw, F))
        assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()


@EACH
@BOTH
def test_single_images_and_empty_batches(name: str, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    for given in (x[0], x[:0]):
        for _ in range(2):
            ours, theirs = (results(getattr(of, name), [given, w, b], {"padding": 1}) for of in (cw, F))
            assert_close(ours, theirs)
    residual = getattr(F, name)(x[0], w, b) * 2
    ours = getattr(cw, name)(x[0], w, b, residual=residual, activation="silu")
    assert_close(ours, F.silu(residual / 2 + residual))


@EACH
@pytest.mark.parametrize("activation", ACTIVATED)
@BOTH
def test_epilogues(name: str, activation: str | None, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``activation(conv + bias + residual)``, with gradients and without."""
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    residual = randn(*getattr(F, name)(x, w).shape, seed=5)

    def theirs(*t: Tensor) -> Tensor:
        y: Tensor = ACTIVATED[activation](
            getattr(F, name)(*t[:2]) + t[2].reshape(-1, *[1] * rank_of(name)) + sum(t[3:])
        )
        return y

    def ours(*t: Tensor) -> Tensor:
        y: Tensor = getattr(cw, name)(*t[:3], activation=activation, residual=t[3] if len(t) > 3 else None)
        return y

    for given in ([x, w, b], [x, w, b, residual]):
        for _ in range(2):
            assert_close(results(ours, given, {}), results(theirs, given, {}))
            with torch.no_grad():
                assert_close(ours(*given), theirs(*given))
            if len(given) == 4:
                assert torch.equal(residual, given[3])


@BOTH
def test_an_activation_called_none_is_none(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = operands("conv2d")
    for _ in range(2):
        assert_close(cw.conv2d(x, w, b, activation="none"), F.conv2d(x, w, b))


@EACH
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("mode", ["heuristic", "quick"])
@BOTH
def test_out_takes_the_result(
    name: str, activation: str | None, mode: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_mode(mode, monkeypatch)
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    plain = getattr(F, name)(x, w, b)
    residual = randn(*plain.shape, seed=5)
    for added in (None, residual):
        for out_as in (torch.clone, channels_last, offset):
            for _ in range(3):
                out = out_as(torch.full_like(plain, float("nan")))
                version = out._version
                y = getattr(cw, name)(x, w, b, activation=activation, residual=added, out=out)
                assert y.data_ptr() == out.data_ptr()
                assert out._version > version
                assert_close(out, ACTIVATED[activation](plain if added is None else plain + added))
