"""Gradients by finite differences, in float64, first and second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from eager.prefer import GEMM, count_calls, prefer, randn

FORMS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 4, 3), (2, 2, 2, 2), {"padding": 1}),
    ((1, 4, 5, 4), (2, 2, 3, 2), {"groups": 2, "stride": (2, 1), "activation": "relu"}),
    ((1, 2, 4, 4), (2, 2, 2, 3), {"padding": "same", "dilation": (2, 1)}),
]


def operands(x: tuple[int, ...], w: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    return randn(*x, seed=1, grad=True), randn(*w, seed=2, grad=True), randn(w[0], seed=3, grad=True)


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize(("x", "w", "rest"), FORMS)
def test_gradients(
    x: tuple[int, ...], w: tuple[int, ...], rest: dict[str, Any], everywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if everywhere:
        prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)

    def function(*given: Tensor) -> Tensor:
        return cw.conv2d(*given, **rest, algorithm=GEMM)

    assert gradcheck(function, operands(x, w))
    assert "forward" in called
    assert ("backward_data" in called) == ("backward_weight" in called) == everywhere
    assert gradgradcheck(function, operands(x, w))


def test_the_gradient_of_a_residual() -> None:
    def function(x: Tensor, w: Tensor, residual: Tensor) -> Tensor:
        return cw.conv2d(x, w, residual=residual, activation="relu", algorithm=GEMM)

    given = randn(1, 2, 4, 4, grad=True), randn(2, 2, 2, 2, seed=1, grad=True), randn(1, 2, 3, 3, seed=2, grad=True)
    assert gradcheck(function, given)
    assert gradgradcheck(function, given)


class Stop(torch.autograd.Function):
    """Through which no gradient passes."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(*_: Any) -> None:
        return None


def test_where_no_gradient_comes_back_there_is_none() -> None:
    """Zeros instead would let an optimizer's momentum move what it has to leave alone."""
    x, w, bias = operands((2, 4, 6, 6), (3, 4, 3, 3))
    residual = randn(2, 3, 4, 4, grad=True)
    y = cw.conv2d(x, w, bias, residual=residual, activation="relu", algorithm=GEMM)
    Stop.apply(y).sum().backward()
    assert [each.grad for each in (x, w, bias, residual)] == [None] * 4


def test_backward_twice_and_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w, b = operands((2, 4, 6, 6), (3, 4, 3, 3))
    loss = cw.conv2d(x, w, b).square().sum()
    first = torch.autograd.grad(loss, (x, w, b), retain_graph=True)
    second = torch.autograd.grad(loss, (x, w, b))
    assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, (x, w, b))


def test_operands_that_were_written_to_are_refused_in_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    for changed in range(2):
        given = operands((2, 4, 6, 6), (3, 4, 3, 3))
        y = cw.conv2d(*given)
        with torch.no_grad():
            given[changed].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_network_trains_as_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)

    def train(convolve: Any) -> list[Tensor]:
        weights = [randn(4, 3, 3, 3, seed=1, grad=True), randn(4, 4, 3, 3, seed=2, grad=True)]
        for step in range(3):
            y = randn(2, 3, 8, 8, seed=step)
            for w in weights:
                y = convolve(y, w, padding=1).relu()
            gradients = torch.autograd.grad(y.mean(), weights)
            with torch.no_grad():
                for w, gradient in zip(weights, gradients, strict=True):
                    w -= gradient
        return weights

    assert_close(train(cw.conv2d), train(F.conv2d))


def test_hooks_and_checkpoints_see_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.checkpoint import checkpoint

    prefer(monkeypatch, GEMM)
    x, w, b = operands((2, 4, 6, 6), (3, 4, 3, 3))
    y: Any = checkpoint(lambda *given: cw.conv2d(*given, activation="relu"), x, w, b, use_reentrant=False)
    seen: list[Tensor] = []
    y.register_hook(seen.append)
    ours = torch.autograd.grad(y.sum(), (x, w, b))
    assert len(seen) == 1
    assert_close(ours, torch.autograd.grad(F.conv2d(x, w, b).relu().sum(), (x, w, b)))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("algorithm", ["reference/gemm", "reference/direct", "reference/fft", "reference/winograd"])
def test_operands_whose_elements_share_memory(algorithm: str, transposed: bool) -> None:
    overlapping = randn(2, 4, 40).unfold(2, 9, 4).detach()
    expanded = randn(1, 4, 9, 9).expand(3, 4, 9, 9)
    sliced = randn(2, 12, 9, 9)[:, 2:6]
    ours, own = (cw.conv_transpose2d, F.conv_transpose2d) if transposed else (cw.conv2d, F.conv2d)
    for x in (overlapping, expanded, sliced):
        for w in (randn(4, 4, 3, 3), randn(1, 4, 3, 3).expand(4, 4, 3, 3), randn(4, 4, 5).unfold(2, 3, 1).detach()):
            leaves = [operand.detach().requires_grad_() for operand in (x, w)]
            with cw.algorithms(forward=algorithm, backward_data=algorithm, backward_weight=algorithm, strict=False):
                found = ours(*leaves)
                made = torch.autograd.grad(found.square().sum(), leaves)
            expected = own(*leaves)
            wanted = torch.autograd.grad(expected.square().sum(), leaves)
            assert_close([found, *made], [expected, *wanted])
            assert [each.stride() for each in made] == [each.stride() for each in wanted]


@pytest.mark.parametrize("function", [cw.conv2d, cw.conv_transpose2d])
def test_a_gradient_has_a_tangent(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Tensor]) -> None:
    prefer(monkeypatch, GEMM)
    x, w = randn(2, 4, 8, 8).requires_grad_(), randn(4, 4, 3, 3, seed=1).requires_grad_()
    own = {cw.conv2d: F.conv2d, cw.conv_transpose2d: F.conv_transpose2d}[function]
    tangents = []
    for each in (own, function, function):
        y = each(x, w)
        with forward_ad.dual_level():
            dy = forward_ad.make_dual(torch.ones_like(y), torch.full_like(y, 2.0))
            made = torch.autograd.grad(y, (x, w), dy)
            tangents.append([forward_ad.unpack_dual(gradient).tangent for gradient in made])
    for found in tangents[1:]:
        for ours, expected in zip(found, tangents[0], strict=True):
            assert_close(ours, expected, rtol=1e-4, atol=1e-4)
